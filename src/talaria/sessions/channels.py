"""The chats in which we can speak, by name: kept as messages arrive from them, found by what people write."""

import difflib
import re
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.wording import platform_label
from talaria.sessions.homes import read_home

_FRESH = timedelta(minutes=10)
_SHOWN = 10
_THREAD = re.compile(r"(.+?):(\d[\d.]*|\$\S+)")
# Numbers, Matrix rooms, and upper-case ids such as Slack's: what nobody would call a chat.
_ID = re.compile(r"[-+]?\d{3,}|!\S+|[A-Z](?=[A-Z0-9]*\d)[A-Z0-9]{7,}")


class Channel(Struct, frozen=True, omit_defaults=True):
    """A chat that something came from; its address has neither a thread nor a person."""

    address: Address
    name: str
    seen: datetime

    @property
    def target(self) -> str:
        """How it is written so that it fits nothing else."""
        return f"{self.address.platform}:{self.address.chat_id}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Channel).decode


def note_channel(tx: Transaction, address: Address, name: str, now: datetime) -> None:
    """Keep that something came from a chat; a name that was known stays where none is given."""
    kind = "group" if address.chat_type == "thread" else address.chat_type
    chat = Address(address.platform, address.chat_id, kind)
    key = f"channel:{address.platform}:{address.chat_id}"
    entry = tx.state.get(key)
    before = _decode(entry.value) if entry else None
    name = " ".join(name.split()) or (before.name if before else "")
    if before and (before.address, before.name) == (chat, name) and now - before.seen < _FRESH:
        return
    tx.state.put(key, _encode(Channel(chat, name, now)).decode())


def list_channels(tx: Transaction, platform: str = "") -> list[Channel]:
    """Return the chats that are known, those heard from last first."""
    entries = tx.state.with_prefix(f"channel:{platform}:" if platform else "channel:")
    return sorted((_decode(entry.value) for entry in entries), key=lambda one: one.seen, reverse=True)


def place_label(tx: Transaction, address: Address) -> str:
    """Return what people call a place: its network, and the name of its chat where one is known."""
    thread = " (in its own thread)" if address.thread_id else ""
    return f"{platform_label(address.platform)}, {_chat_name(tx, address)}{thread}"


def _chat_name(tx: Transaction, address: Address) -> str:
    entry = tx.state.get(f"channel:{address.platform}:{address.chat_id}")
    home = read_home(tx, address.platform)
    named = home.name if home is not None and home.address.chat_id == address.chat_id else ""
    return named or (_decode(entry.value).name if entry else "") or f"chat {address.chat_id}"


def forget_channel(tx: Transaction, address: Address) -> bool:
    """Take out a chat that is gone."""
    return tx.state.delete(f"channel:{address.platform}:{address.chat_id}")


def find_target(tx: Transaction, text: str, platforms: Collection[str]) -> Address:
    """Return the place that a person means, on one of these networks.

    ``platform`` is its home channel; ``platform:chat`` a chat by its id or its whole name, in any case and with or
    without a # or @ in front; ``:thread`` behind that a thread in it. Raises `NotFound` with the nearest name, or
    `Ambiguous` with the ids.
    """
    platform, colon, rest = (part.strip() for part in text.strip().partition(":"))
    if platform not in platforms:
        near = _nearest(platform, platforms)
        raise NotFound(f"`{platform}` is no chat network that I use; " + _instead(near, platforms))
    if not colon or not rest:
        return _home(tx, platform)
    known = list_channels(tx, platform)
    return _by_known_id(rest, known) or _by_name(rest, known) or _by_other_id(platform, rest, known)


def _home(tx: Transaction, platform: str) -> Address:
    home = read_home(tx, platform)
    if home is None:
        raise NotFound(f"{platform} has no home channel: use `/sethome` in the chat that shall be it.")
    return home.address


def _by_known_id(rest: str, known: Iterable[Channel]) -> Address | None:
    fitting = [
        one.address for one in known if rest == one.address.chat_id or rest.startswith(f"{one.address.chat_id}:")
    ]
    if not fitting:
        return None
    chat = max(fitting, key=lambda address: len(address.chat_id))
    return _in_thread(chat, rest[len(chat.chat_id) + 1 :])


def _by_name(rest: str, known: Collection[Channel]) -> Address | None:
    for name, thread in _readings(rest):
        named = [one for one in known if one.name and _folded(one.name) == _folded(name)]
        if len(named) > 1:
            lines = [f"  {one.target}  {one.name} ({one.address.chat_type})" for one in named[:_SHOWN]]
            raise Ambiguous("\n".join([f"`{name}` is the name of {len(named)} chats; take the id of one:", *lines]))
        if named:
            return _in_thread(named[0].address, thread)
    return None


def _by_other_id(platform: str, rest: str, known: Collection[Channel]) -> Address:
    """Return a chat from which nothing has come yet, if this is an id and not a name that was misspelt."""
    for chat_id, thread in reversed(_readings(rest)):
        if _ID.fullmatch(chat_id) and (not chat_id.startswith("!") or not thread or thread.startswith("$")):
            return _in_thread(Address(platform, chat_id, "group"), thread)
    names = [one.name for one in known if one.name]
    raise NotFound(f"No chat on {platform} is called `{rest}`; " + _instead(_nearest(rest, names), names))


def _readings(rest: str) -> list[tuple[str, str]]:
    """Return what may be meant: a chat, or a chat and a thread in it."""
    found = _THREAD.fullmatch(rest)
    return [(rest, ""), (found[1], found[2])] if found else [(rest, "")]


def _in_thread(chat: Address, thread: str) -> Address:
    if not thread:
        return chat
    return structs.replace(chat, thread_id=thread, chat_type="private" if chat.chat_type == "private" else "thread")


def _folded(name: str) -> str:
    return " ".join(name.split()).lstrip("#@").casefold()


def _nearest(name: str, known: Iterable[str]) -> str:
    spelt = {_folded(one): one for one in known}
    near = difflib.get_close_matches(_folded(name), spelt, n=1, cutoff=0.6)
    return spelt[near[0]] if near else ""


def _instead(near: str, known: Collection[str]) -> str:
    if near:
        return f"the nearest is `{near}`."
    listed = ", ".join(f"`{one}`" for one in list(dict.fromkeys(known))[:_SHOWN])
    return f"there are {listed}." if listed else "none is known yet."
