"""Webhook routes as shown to people."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class RouteState(Struct, frozen=True, kw_only=True):
    """A route: its URL, signature scheme and reply target. ``problem`` keeps it from working."""

    name: str
    file: str
    url: str
    title: str = ""
    scheme: str = ""
    secret: str = ""
    deliver_to: str = ""
    problem: str = ""


class WebhookTrial(Struct, frozen=True, kw_only=True):
    """The trial of an event: ``text`` is what the agent would read, ``why`` the reason for ignoring it.

    ``missing`` are fields that a template names and the event lacks.
    """

    text: str = ""
    why: str = ""
    id: str = ""
    conversation: str = ""
    missing: tuple[str, ...] = ()


class WebhookInfo(Protocol):
    """The routes of a profile."""

    folder: str

    def routes(self) -> list[RouteState]:
        """Return all routes, including broken ones."""

    def try_out(self, name: str, body: bytes, headers: Mapping[str, str]) -> WebhookTrial:
        """Return what an event would become on a route; raises `NotFound`, or `Refused` for a broken one."""
