"""Settings of the ntfy adapter."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused

PUBLIC_SERVER = "https://ntfy.sh"
_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")


class NtfySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server and topics of one account.

    Each topic is a chat. ``title`` is the title of our notifications and distinguishes them from what people publish. A
    call takes ``patience`` at most, one with a file ``file_patience``; the server sends a sign of life within
    ``silence``. ``file_limit`` is the largest file in bytes that the server accepts.
    """

    topics: tuple[str, ...]
    token: str = ""
    name: str = "ntfy"
    server: str = PUBLIC_SERVER
    title: Annotated[str, Meta(min_length=1)] = "Talaria"
    file_limit: Annotated[int, Meta(ge=0)] = 15 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=120)


def read_settings(name: str, options: Mapping[str, str], topics: str, token: str) -> NtfySettings:
    """Return the settings for these options; ``topics`` are separated by commas. Raises `Refused` for invalid ones."""
    names = tuple(one.strip() for one in topics.split(",") if one.strip())
    for topic in names:
        if not _TOPIC.fullmatch(topic):
            raise Refused(f"`{topic}` is no ntfy topic: use up to 64 letters, digits, `-` and `_` in NTFY_TOPIC.")
    given: dict[str, object] = {**options, "topics": names, "token": token, "name": name}
    try:
        settings = msgspec.convert(given, NtfySettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    if not settings.server.startswith(("http://", "https://")):
        raise Refused(f"The option server of platforms.{name} must start with http:// or https://.")
    return msgspec.structs.replace(settings, server=settings.server.rstrip("/"))
