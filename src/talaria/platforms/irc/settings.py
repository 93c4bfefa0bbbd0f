"""Settings of the IRC adapter."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused

_TLS_PORT, _PLAIN_PORT = 6697, 6667
_NICK = re.compile(r"[A-Za-z\[\]\\`_^{|}][-\w\[\]\\`^{|}]{0,29}", re.ASCII)
_CHANNEL = re.compile(r"[#&!+][^\s,\x07]{1,63}")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class IrcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server, identity and channels of one account.

    ``channels`` are joined after each connect, ``keys`` are the passwords of some. ``account`` and ``password`` log in
    with SASL PLAIN, ``certificate`` (a PEM file with its key) with SASL EXTERNAL. ``identity`` says whom to trust:
    people by their services account, or by their nick, which anyone can take. ``lines_per_second`` and ``burst`` limit
    what we send. A server that says nothing for ``silence`` is given up; a request takes ``patience`` at most.
    """

    host: str
    port: int = _TLS_PORT
    tls: bool = True
    ca_file: str = ""
    name: str = "irc"
    nick: str = "talaria"
    real_name: Annotated[str, Meta(min_length=1)] = "Talaria"
    channels: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}
    account: str = ""
    password: str = ""
    server_password: str = ""
    certificate: str = ""
    identity: Literal["account", "nick"] = "account"
    lines_per_second: Annotated[float, Meta(gt=0)] = 1.0
    burst: Annotated[int, Meta(ge=1)] = 5
    patience: timedelta = timedelta(seconds=15)
    silence: timedelta = timedelta(seconds=180)

    @property
    def mechanism(self) -> Literal["PLAIN", "EXTERNAL", ""]:
        """Return how to log in with SASL; empty if there is no account."""
        return "PLAIN" if self.password else "EXTERNAL" if self.certificate else ""


def read_settings(
    name: str, options: Mapping[str, str], server: str, *, password: str = "", server_password: str = ""
) -> IrcSettings:
    """Return the settings for these options; raises `Refused` for invalid ones.

    ``server`` is ``host``, ``host:port`` or an address that starts with ``ircs://`` or ``irc://`` (without TLS).
    ``channels`` are separated by commas; a channel with a password is written ``#name=password``.
    """
    given: dict[str, object] = {**options, **_read_server(server), **_read_channels(options.get("channels", ""))}
    given |= {"name": name, "password": password, "server_password": server_password}
    given["account"] = options.get("account") or options.get("nick") or "talaria"
    try:
        settings = msgspec.convert(given, IrcSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    if not _NICK.fullmatch(settings.nick):
        raise Refused(f"`{settings.nick}` can't be a nick: use up to 30 letters, digits and any of `_-[]{{}}\\|^`.")
    if password and not settings.tls and settings.host not in _LOOPBACK:
        raise Refused("IRC_PASSWORD isn't sent without encryption. Use an ircs:// address in IRC_SERVER.")
    for option in ("certificate", "ca_file"):
        if (path := getattr(settings, option)) and not Path(path).is_file():
            raise Refused(f"The option {option} of platforms.{name} names no file: {path}")
    return settings


def _read_server(server: str) -> dict[str, object]:
    address = urlsplit(server if "://" in server else f"ircs://{server}")
    try:
        port = address.port
    except ValueError:
        port = -1
    if address.scheme not in ("irc", "ircs") or not address.hostname or port == -1:
        raise Refused("IRC_SERVER must be a host, host:port, or an address that starts with ircs:// or irc://.")
    tls = address.scheme == "ircs"
    return {"host": address.hostname, "port": port or (_TLS_PORT if tls else _PLAIN_PORT), "tls": tls}


def _read_channels(channels: str) -> dict[str, object]:
    names, keys = [], {}
    for one in filter(None, map(str.strip, channels.split(","))):
        channel, _, key = one.partition("=")
        if not _CHANNEL.fullmatch(channel):
            raise Refused(f"`{channel}` is no IRC channel: names start with #, without spaces.")
        names.append(channel)
        if key:
            keys[channel] = key
    return {"channels": names, "keys": keys}
