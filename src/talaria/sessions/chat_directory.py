"""Chats that can be addressed by name, and the home chat of each network."""

import difflib
import re
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.addresses import WEB, Address
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.formatting import platform_label

GATEWAY = "gateway"


class HomeChat(Struct, frozen=True, omit_defaults=True):
    """The default chat of a network."""

    address: Address
    name: str = ""


HOME_CHAT = NamedValue("home_chat", HomeChat)


def read_home(tx: Transaction, platform: str) -> HomeChat | None:
    """Return the home chat of a network, if one was set."""
    return HOME_CHAT.get(tx, platform)


def write_home(tx: Transaction, home: HomeChat) -> None:
    """Make a chat the home chat of its network."""
    HOME_CHAT.write(tx, home.address.platform, home)


VOICE_CHOICE = NamedValue("voice_choice", bool)  # by network and chat


def read_voice_choice(tx: Transaction, address: Address) -> bool | None:
    """Return whether replies in a chat are spoken; ``None`` if the settings decide."""
    return VOICE_CHOICE.get(tx, _build_chat_key(address))


def write_voice_choice(tx: Transaction, address: Address, chosen: bool | None) -> None:
    """Store whether replies in a chat are spoken; ``None`` leaves it to the settings."""
    if chosen is None:
        VOICE_CHOICE.delete(tx, _build_chat_key(address))
    else:
        VOICE_CHOICE.write(tx, _build_chat_key(address), chosen)


_REFRESH_INTERVAL = timedelta(minutes=10)
_MAX_LISTED = 10
_THREAD = re.compile(r"(.+?):(\d[\d.]*|\$\S+)")


# Numbers, Matrix room ids and upper-case ids (Slack's, for example) are not chat names.
_ID = re.compile(r"[-+]?\d{3,}|!\S+|[A-Z](?=[A-Z0-9]*\d)[A-Z0-9]{7,}")


class KnownChannel(Struct, frozen=True, omit_defaults=True):
    """A chat that a message came from; its address has neither a thread nor a person."""

    address: Address
    name: str
    seen: datetime

    @property
    def target(self) -> str:
        """Unambiguous target text of the chat."""
        return f"{self.address.platform}:{self.address.chat_id}"


KNOWN_CHAT = NamedValue("known_chat", KnownChannel)


def record_channel(tx: Transaction, address: Address, name: str, now: datetime) -> None:
    """Record that a message came from a chat; a known name stays if none is given."""
    kind = "group" if address.chat_type == "thread" else address.chat_type
    chat = Address(address.platform, address.chat_id, kind)
    before = KNOWN_CHAT.get(tx, _build_chat_key(address))
    name = " ".join(name.split()) or (before.name if before else "")
    if before and (before.address, before.name) == (chat, name) and now - before.seen < _REFRESH_INTERVAL:
        return
    KNOWN_CHAT.write(tx, _build_chat_key(address), KnownChannel(chat, name, now))


def list_channels(tx: Transaction, platform: str = "") -> list[KnownChannel]:
    """Return the known chats, most recently active first."""
    found = KNOWN_CHAT.items(tx, f"{platform}:" if platform else "")
    return sorted(found.values(), key=lambda one: one.seen, reverse=True)


def address_label(tx: Transaction, address: Address) -> str:
    """Return a label for an address: its network, and the name of its chat if known."""
    if address.platform == WEB:
        return platform_label(WEB)
    thread = " (in its own thread)" if address.thread_id else ""
    return f"{platform_label(address.platform)}, {_read_chat_name(tx, address)}{thread}"


def _read_chat_name(tx: Transaction, address: Address) -> str:
    known = KNOWN_CHAT.get(tx, _build_chat_key(address))
    home = read_home(tx, address.platform)
    named = home.name if home is not None and home.address.chat_id == address.chat_id else ""
    return named or (known.name if known else "") or f"chat {address.chat_id}"


def forget_channel(tx: Transaction, address: Address) -> bool:
    """Remove a chat that no longer exists."""
    return KNOWN_CHAT.delete(tx, _build_chat_key(address))


def _build_chat_key(address: Address) -> str:
    return f"{address.platform}:{address.chat_id}"


def find_target(tx: Transaction, text: str, platforms: Collection[str]) -> Address:
    """Return the address that a person means, on one of these networks.

    ``platform`` is its home chat; ``platform:chat`` a chat by its id or its whole name, in any case and with or without
    a # or @ in front; ``:thread`` after that a thread in it. Raises `NotFound` with the nearest name, or `Ambiguous`
    with the ids.
    """
    platform, colon, rest = (part.strip() for part in text.strip().partition(":"))
    if platform not in platforms:
        near = _find_nearest(platform, platforms)
        raise NotFound(
            f"I'm not connected to a chat network named `{platform}`; " + _format_suggestion(near, platforms)
        )
    if not colon or not rest:
        return _require_home(tx, platform)
    known = list_channels(tx, platform)
    return _find_by_known_id(rest, known) or _find_by_name(rest, known) or _find_by_new_id(platform, rest, known)


def _require_home(tx: Transaction, platform: str) -> Address:
    home = read_home(tx, platform)
    if home is None and platform == WEB:
        raise NotFound("The web app hasn't been used yet. Open it with `talaria web`.")
    if home is None:
        # The command prefix differs between networks and is not known here.
        raise NotFound(
            f"{platform_label(platform)} has no home chat yet. Use the command `sethome` in the chat you want to use."
        )
    return home.address


def _find_by_known_id(rest: str, known: Iterable[KnownChannel]) -> Address | None:
    matches = [
        one.address for one in known if rest == one.address.chat_id or rest.startswith(f"{one.address.chat_id}:")
    ]
    if not matches:
        return None
    chat = max(matches, key=lambda address: len(address.chat_id))
    return _add_thread(chat, rest[len(chat.chat_id) + 1 :])


def _find_by_name(rest: str, known: Collection[KnownChannel]) -> Address | None:
    for name, thread in _parse_target(rest):
        named = [one for one in known if one.name and _fold_name(one.name) == _fold_name(name)]
        if len(named) > 1:
            lines = [f"  {one.target}  {one.name} ({one.address.chat_type})" for one in named[:_MAX_LISTED]]
            raise Ambiguous("\n".join([f"`{name}` matches {len(named)} chats. Use an id:", *lines]))
        if named:
            return _add_thread(named[0].address, thread)
    return None


def _find_by_new_id(platform: str, rest: str, known: Collection[KnownChannel]) -> Address:
    """Return the address of a chat without messages so far, or raise `NotFound` if this is no id."""
    for chat_id, thread in reversed(_parse_target(rest)):
        if _ID.fullmatch(chat_id) and (not chat_id.startswith("!") or not thread or thread.startswith("$")):
            return _add_thread(Address(platform, chat_id, "group"), thread)
    names = [one.name for one in known if one.name]
    raise NotFound(
        f"There is no chat named `{rest}` on {platform}; " + _format_suggestion(_find_nearest(rest, names), names)
    )


def _parse_target(rest: str) -> list[tuple[str, str]]:
    """Return the possible readings: a chat, or a chat and a thread in it."""
    found = _THREAD.fullmatch(rest)
    return [(rest, ""), (found[1], found[2])] if found else [(rest, "")]


def _add_thread(chat: Address, thread: str) -> Address:
    if not thread:
        return chat
    return structs.replace(chat, thread_id=thread, chat_type="private" if chat.chat_type == "private" else "thread")


def _fold_name(name: str) -> str:
    return " ".join(name.split()).lstrip("#@").casefold()


def _find_nearest(name: str, known: Iterable[str]) -> str:
    by_folded_name = {_fold_name(one): one for one in known}
    near = difflib.get_close_matches(_fold_name(name), by_folded_name, n=1, cutoff=0.6)
    return by_folded_name[near[0]] if near else ""


def _format_suggestion(near: str, known: Collection[str]) -> str:
    if near:
        return f"the closest match is `{near}`."
    listed = ", ".join(f"`{one}`" for one in list(dict.fromkeys(known))[:_MAX_LISTED])
    return f"available: {listed}." if listed else "none is known yet."
