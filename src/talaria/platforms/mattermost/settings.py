"""Settings of the Mattermost adapter."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused


class MattermostSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server and token of one bot account.

    ``file_limit`` is the largest file in bytes. A call takes ``patience`` at most, one with a file ``file_patience``; a
    websocket that is silent for ``silence`` is given up.
    """

    server: str
    token: str
    name: str = "mattermost"
    file_limit: Annotated[int, Meta(ge=0)] = 100 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)


def read_settings(name: str, options: Mapping[str, str], server: str, token: str) -> MattermostSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    given: dict[str, object] = {**options, "server": server.rstrip("/"), "token": token, "name": name}
    try:
        settings = msgspec.convert(given, MattermostSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    address = urlsplit(settings.server)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise Refused("MATTERMOST_URL must be the address of the server, for example https://chat.example.org.")
    return settings
