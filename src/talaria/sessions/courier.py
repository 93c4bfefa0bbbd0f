"""Messages of tools on their way to chats: the place found, the message queued and recorded there."""

import hashlib
from collections.abc import Collection, Mapping
from datetime import datetime

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import Content
from talaria.contracts.sending import ORIGIN, Reachable, Sent
from talaria.contracts.store import Store, Transaction
from talaria.contracts.tool import Call
from talaria.core.addresses import Address
from talaria.core.errors import NotFound
from talaria.core.messages import File, Image
from talaria.core.session_context import SessionContext
from talaria.sessions.channels import Channel, find_target, list_channels
from talaria.sessions.homes import gateway_alive, read_home
from talaria.sessions.outgoing import OUTBOX, queue_notice
from talaria.sessions.sending import Parcel, send_parcel

_SOURCES: Mapping[str, str] = {"cli": "the terminal"}


class ChatCourier:
    """Implements `Courier` for the networks that are set up."""

    def __init__(self, store: Store, platforms: Collection[str], clock: Clock | None = None) -> None:
        self._store = store
        self._platforms = platforms
        self._clock = clock or SystemClock()

    async def send(self, target: str, text: str, call: Call, files: tuple[File | Image, ...] = ()) -> Sent:
        """Queue a message once for each call and content, and record it where it is read."""
        content, now = Content(text=text, files=files), self._clock.now()
        sent = await self._store.write(lambda tx: self._send(tx, target, content, call, now))
        await self._store.hint(OUTBOX)
        return sent

    async def reachable(self) -> list[Reachable]:
        """Return the chats that are known, those heard from last first."""
        return await self._store.read(lambda tx: reachable(tx, self._platforms))

    def _send(self, tx: Transaction, target: str, content: Content, call: Call, now: datetime) -> Sent:
        if target == ORIGIN:
            place = _origin(tx, call)
            queue_notice(tx, call.session_id, place, content, _key(call, place, content))
            return Sent("this chat", gateway_alive(tx))
        place = find_target(tx, target, self._platforms)
        parcel = Parcel(
            key=_key(call, place, content),
            address=place,
            content=content,
            source=_source(call.context),
            at=now,
            sender=call.session_id,
        )
        send_parcel(tx, parcel)
        return Sent(target, gateway_alive(tx))


def reachable(tx: Transaction, platforms: Collection[str]) -> list[Reachable]:
    """Return the chats of these networks that are known, those heard from last first."""
    homes = {home.address.platform: home.address.chat_id for name in platforms if (home := read_home(tx, name))}
    known = [one for one in list_channels(tx) if one.address.platform in platforms]
    return [Reachable(one.target, one.name, one.address.chat_type, _is_home(one, homes)) for one in known]


def _is_home(channel: Channel, homes: Mapping[str, str]) -> bool:
    return homes.get(channel.address.platform) == channel.address.chat_id


def _origin(tx: Transaction, call: Call) -> Address:
    places = [binding.address for binding in tx.bindings.of_session(call.session_id)]
    here = [one for one in places if (one.platform, one.chat_id) == (call.context.platform, call.context.chat_id)]
    if not places:
        raise NotFound("This conversation is in no chat: what you answer is read here.")
    return (here or places)[0]


def _source(context: SessionContext) -> str:
    return context.platform or _SOURCES.get(context.source, context.source) or "elsewhere"


def _key(call: Call, address: Address, content: Content) -> str:
    """Return the identity of a message: its words too, for some servers give two calls of one turn the same id."""
    words = repr((call.id, address, content)).encode("utf-8", "surrogatepass")
    return f"send:{call.context.turn_id or call.session_id}:{hashlib.sha256(words).hexdigest()[:24]}"
