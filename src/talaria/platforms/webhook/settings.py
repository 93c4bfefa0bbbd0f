"""What the webhook adapter has to know."""

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to listen, and how much is taken.

    ``routes`` is the folder of the routes. A post is at most ``largest`` bytes, has ``reading`` to arrive, and
    ``patience`` to be stored before its sender is told to come again; at most ``waiting`` are being taken at a time. A
    reply has ``posting`` to be taken by its receiver.
    """

    routes: str
    name: str = "webhook"
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8645
    largest: Annotated[int, Meta(ge=1024)] = 1024 * 1024
    waiting: Annotated[int, Meta(ge=1)] = 64
    reading: timedelta = timedelta(seconds=10)
    patience: timedelta = timedelta(seconds=8)
    posting: timedelta = timedelta(seconds=15)
