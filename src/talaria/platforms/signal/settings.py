"""Settings of the Signal adapter."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused

_DEFAULT_PORT = 7583
_NUMBER = re.compile(r"\+[1-9]\d{5,14}")


class SignalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Daemon and account.

    ``socket`` is the path of a Unix socket, used instead of ``host`` and ``port``. ``account`` is the phone number of
    the bot. ``disappearing`` says what happens to messages with a timer: we store what we answer. ``file_limit`` is in
    bytes. A call takes ``patience`` at most, one with a file ``file_patience``; the daemon is asked for a sign of life
    after half of ``silence``.
    """

    account: str
    host: str = "127.0.0.1"
    port: int = _DEFAULT_PORT
    socket: str = ""
    name: str = "signal"
    disappearing: Literal["answer", "ignore"] = "ignore"
    file_limit: Annotated[int, Meta(ge=0, le=100 * 1024 * 1024)] = 25 * 1024 * 1024
    patience: timedelta = timedelta(seconds=18)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=120)


def read_settings(name: str, options: Mapping[str, str], daemon: str, account: str) -> SignalSettings:
    """Return the settings for these options; raises `Refused` for invalid ones.

    ``daemon`` is ``host:port`` or ``unix:`` and the path of a socket.
    """
    if not _NUMBER.fullmatch(account):
        raise Refused("SIGNAL_ACCOUNT must be the phone number of the bot, for example +4915112345678.")
    given: dict[str, object] = {**options, **_read_daemon(daemon), "account": account, "name": name}
    try:
        return msgspec.convert(given, SignalSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error


def _read_daemon(daemon: str) -> dict[str, object]:
    if daemon.startswith("unix:") and len(daemon) > len("unix:"):
        return {"socket": daemon.removeprefix("unix:")}
    host, _, port = daemon.rpartition(":")
    if not host or not port.isdigit():
        raise Refused("SIGNAL_DAEMON must be host:port, or unix: and the path of the daemon's socket.")
    return {"host": host.strip("[]"), "port": int(port)}
