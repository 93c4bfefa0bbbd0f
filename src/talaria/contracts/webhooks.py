"""What people are told of the routes of their webhooks."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class RouteState(Struct, frozen=True, kw_only=True):
    """A route: where events are posted, how they are signed, where replies go. ``problem`` keeps it from working."""

    name: str
    file: str
    url: str
    title: str = ""
    scheme: str = ""
    secret: str = ""
    deliver_to: str = ""
    problem: str = ""


class Trial(Struct, frozen=True, kw_only=True):
    """What would become of an event: ``text`` is what the agent would read, ``why`` it would not be asked to.

    ``missing`` are places that a template names and the event does not have.
    """

    text: str = ""
    why: str = ""
    id: str = ""
    conversation: str = ""
    missing: tuple[str, ...] = ()


class WebhookDesk(Protocol):
    """The routes of a profile."""

    folder: str

    def routes(self) -> list[RouteState]:
        """Return all of them, those with faults too."""

    def try_out(self, name: str, body: bytes, headers: Mapping[str, str]) -> Trial:
        """Tell what an event would become on a route; raises `NotFound`, or `Refused` for a fault."""
