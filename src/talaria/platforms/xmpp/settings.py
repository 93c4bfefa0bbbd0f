"""Settings of the XMPP adapter."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused

_STARTTLS_PORT, _TLS_PORT = 5222, 5223
_JID = re.compile(r"""[^\s"&'/:<>@]{1,255}@[^\s"&'/:<>@]{1,255}""")


class XmppSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Account, server and rooms of one account.

    Without a ``host``, DNS names the server of the account's domain. Connections are always encrypted: from their start
    (``direct_tls``), or with STARTTLS; the certificate must be one for the domain. ``rooms`` are joined after each
    connect, ``room_passwords`` are the passwords of some. ``file_limit`` is the largest file in bytes. A request takes
    ``patience`` at most, one with a file ``file_patience``; a server that is silent for ``silence`` is given up.
    """

    jid: str
    password: str
    host: str = ""
    port: int = _STARTTLS_PORT
    direct_tls: bool = False
    ca_file: str = ""
    name: str = "xmpp"
    nick: str = ""
    rooms: tuple[str, ...] = ()
    room_passwords: Mapping[str, str] = {}
    file_limit: Annotated[int, Meta(ge=0)] = 10 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=120)

    @property
    def domain(self) -> str:
        """Return the server part of the address."""
        return self.jid.partition("@")[2]

    @property
    def user(self) -> str:
        """Return the part of the address before the server."""
        return self.jid.partition("@")[0]


def read_settings(name: str, options: Mapping[str, str], jid: str, password: str) -> XmppSettings:
    """Return the settings for these options; raises `Refused` for invalid ones.

    The option ``server`` is ``host``, ``host:port``, or an address that starts with ``xmpps://`` (TLS from the start).
    ``rooms`` are separated by commas; a room with a password is written ``room@server=password``.
    """
    jid = jid.strip().lower()
    if not _JID.fullmatch(jid):
        raise Refused("XMPP_JID must be the address of the bot's account, for example talaria@example.org.")
    others = {key: value for key, value in options.items() if key not in ("server", "rooms")}
    given: dict[str, object] = {**others, **_read_server(options.get("server", ""))}
    given |= {**_read_rooms(options.get("rooms", "")), "name": name, "jid": jid, "password": password}
    given["nick"] = options.get("nick") or jid.partition("@")[0]
    try:
        settings = msgspec.convert(given, XmppSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
    if settings.ca_file and not Path(settings.ca_file).is_file():
        raise Refused(f"The option ca_file of platforms.{name} names no file: {settings.ca_file}")
    return settings


def _read_server(server: str) -> dict[str, object]:
    if not server:
        return {}
    address = urlsplit(server if "://" in server else f"xmpp://{server}")
    try:
        port = address.port
    except ValueError:
        port = -1
    if address.scheme not in ("xmpp", "xmpps") or not address.hostname or port == -1:
        raise Refused("The XMPP server must be a host, host:port, or an address that starts with xmpps://.")
    direct = address.scheme == "xmpps"
    return {
        "host": address.hostname,
        "port": port or (_TLS_PORT if direct else _STARTTLS_PORT),
        "direct_tls": direct,
    }


def _read_rooms(rooms: str) -> dict[str, object]:
    names, passwords = [], {}
    for one in filter(None, map(str.strip, rooms.split(","))):
        room, _, password = one.partition("=")
        room = room.strip().lower()
        if not _JID.fullmatch(room):
            raise Refused(f"`{room}` is no XMPP room: write it as room@server, for example garden@rooms.example.org.")
        names.append(room)
        if password:
            passwords[room] = password
    return {"rooms": names, "room_passwords": passwords}
