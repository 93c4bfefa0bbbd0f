"""Settings of the Mattermost adapter."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8652


class MattermostSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server and token of one bot account.

    With an ``endpoint``, which the server calls, there are buttons and the slash command ``command``;
    ``command_tokens`` are those of commands that were registered by hand. ``file_limit`` is the largest file in bytes.
    A call takes ``patience`` at most, one with a file ``file_patience``; a websocket that is silent for ``silence`` is
    given up.
    """

    server: str
    token: str
    name: str = "mattermost"
    endpoint: EndpointSettings | None = None
    command: Annotated[str, Meta(pattern="^[a-z0-9._-]+$")] = "talaria"
    command_tokens: tuple[str, ...] = ()
    file_limit: Annotated[int, Meta(ge=0)] = 100 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)


def read_settings(
    name: str, options: Mapping[str, str], server: str, token: str, command_tokens: str = ""
) -> MattermostSettings:
    """Return the settings for these options; raises `Refused` for invalid ones.

    Without a ``public_url``, the other options of the endpoint mean nothing.
    """
    endpoint = read_endpoint(name, options, PORT)[0] if options.get("public_url") else None
    others = {key: text for key, text in options.items() if key not in EndpointSettings.__struct_fields__}
    given: dict[str, object] = {**others, "server": server.rstrip("/"), "token": token, "name": name}
    given |= {"endpoint": endpoint, "command_tokens": tuple(command_tokens.replace(",", " ").split())}
    try:
        settings = msgspec.convert(given, MattermostSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    address = urlsplit(settings.server)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise Refused("MATTERMOST_URL must be the address of the server, for example https://chat.example.org.")
    return settings
