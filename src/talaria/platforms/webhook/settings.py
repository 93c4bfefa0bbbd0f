"""Settings of the webhook adapter."""

import ipaddress
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address to listen on, and the limits.

    ``routes`` is the folder of the routes. A post has at most ``largest`` bytes; its headers have ``head`` to arrive,
    its body ``reading``, and it has ``patience`` to be stored before its sender has to retry; at most ``waiting`` are
    handled at a time. A reply has ``posting`` to be accepted by its receiver.
    """

    routes: str
    name: str = "webhook"
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8645
    largest: Annotated[int, Meta(ge=1024)] = 1024 * 1024
    waiting: Annotated[int, Meta(ge=1)] = 64
    head: timedelta = timedelta(seconds=10)
    reading: timedelta = timedelta(seconds=10)
    patience: timedelta = timedelta(seconds=8)
    posting: timedelta = timedelta(seconds=15)

    @property
    def folder(self) -> Path:
        """Return the folder of the routes."""
        return Path(self.routes).expanduser()

    @property
    def is_on_loopback(self) -> bool:
        """Return whether only this machine can post."""
        return is_loopback(self.host)


def read_settings(name: str, options: Mapping[str, str], folder: Path) -> WebhookSettings:
    """Return the settings for these options, with routes in a folder; raises `Refused` for invalid ones."""
    values = {"routes": str(folder), **options, "name": name}
    try:
        return msgspec.convert(values, WebhookSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error


def is_loopback(host: str) -> bool:
    """Return whether a name or an address means this machine alone."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
