"""What arrives from a network: allowed or not, then into the inbox of its conversation, once, and to its room."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct, structs

from talaria.commands.command import Author
from talaria.commands.using import is_command
from talaria.contracts.hooks import Hooks, NoHooks
from talaria.contracts.platform import Content, Incoming
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address, Route
from talaria.core.errors import StoreError, TalariaError
from talaria.core.ids import SessionId, WorkerId
from talaria.core.messages import Text
from talaria.core.senders import chat_sender
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.beginnings import tell_of_beginning
from talaria.gateway.doorman import Doorman, Guest
from talaria.gateway.keepers import Letter, keeper_of, topic, write_letter
from talaria.gateway.moving import move_chat
from talaria.gateway.room import Room
from talaria.gateway.rooms import Rooms
from talaria.sessions.admitted import Admitted
from talaria.sessions.lane import arrival_of
from talaria.sessions.leaving import end_background
from talaria.sessions.outgoing import OUTBOX, queue_notice
from talaria.sessions.sending import tell_news, welcome
from talaria.sessions.turn_log import STEERING

log = logging.getLogger(__name__)

COMMAND = "command"
_MOMENT = timedelta(seconds=5)
_NOTHING = SessionId("")
_KNOWN = 1000
_STORE_PAUSE = 1.0
_NOT_OPEN = "That question is no longer open."
_NOT_YOURS = "Only the person who was asked can answer that."
_STUCK = "My database is not responding; nothing else can run right now."


class Admission(Struct, frozen=True, kw_only=True):
    """What became of something that arrived: who said it, in which conversation, and who keeps the room of that.

    ``item`` is its number in the inbox, ``over`` the conversation that it made the last one of that place, with
    ``notice`` as the words about that. ``begun`` says that its conversation began with it.
    """

    guest: Guest
    keeper: WorkerId
    session_id: SessionId = _NOTHING
    item: int = 0
    over: SessionId = _NOTHING
    notice: str = ""
    begun: bool = False


class Intake:
    """Takes what arrives from one network; ``end`` ends what a conversation that is over has left running."""

    def __init__(
        self,
        store: Store,
        name: str,
        doorman: Callable[[], Doorman],
        rooms: Rooms,
        busy: Callable[[], str],
        end: Callable[[SessionId], object],
        hooks: Hooks = NoHooks(),  # noqa: B008 (there is nothing in it that could change)
    ) -> None:
        self._store = store
        self._name = name
        self._doorman = doorman
        self._rooms = rooms
        self._busy = busy
        self._end = end
        self._hooks = hooks
        self._guests: OrderedDict[tuple[Address, str], Guest] = OrderedDict()

    async def take(self, incoming: Incoming) -> str:
        """Take one thing in; when this returns it is kept. Returns what a stranger is to be told."""
        admission = await self._store.write(lambda tx: self._admitted(tx, incoming))
        if isinstance(admission, str):
            return admission
        self._remember(incoming, admission.guest)
        if admission.begun:
            tell_of_beginning(self._hooks, incoming, admission.guest.key, admission.session_id, admission.over)
        if admission.keeper != self._rooms.worker:
            await self._store.hint(topic(admission.keeper))
        else:  # Opening a room takes a while; others are heard meanwhile.
            self._rooms.start(self._see_to(incoming, admission))
        return ""

    def meanwhile(self, incoming: Incoming) -> str:
        """Return what to answer to what cannot wait while the store does not answer: a stop, and how things are.

        Only those are heard who were let in before; it is acted upon as usual when the store is back.
        """
        guest = self._guests.get((incoming.address, incoming.sender.id))
        word = incoming.text.strip().lower()
        if guest is None or word not in {"/stop", "/status"}:
            return ""
        room = self._rooms.find(guest.key)
        running = room is not None and room.seat.busy
        if word == "/stop" and room is not None and running and room.seat.chat.conversation.stop():
            return f"Stopping. {_STUCK}"
        return f"{'A turn is running here.' if running else 'Nothing is running here.'} {_STUCK}"

    def _remember(self, incoming: Incoming, guest: Guest) -> None:
        self._guests[incoming.address, incoming.sender.id] = guest
        self._guests.move_to_end((incoming.address, incoming.sender.id))
        while len(self._guests) > _KNOWN:
            self._guests.popitem(last=False)

    async def open(self, letter: Letter) -> None:
        """Act on something that another worker has taken in."""
        guest = await self._store.write(lambda tx: self._doorman().admit(tx, letter.incoming))
        if not isinstance(guest, str):
            admission = Admission(
                guest=guest, keeper=self._rooms.worker, session_id=letter.session_id, item=letter.item
            )
            await self._see_to(letter.incoming, admission)

    def _admitted(self, tx: Transaction, incoming: Incoming) -> Admission | str:
        """Keep it: in the inbox, and as a letter where another worker keeps the room; a text is what to answer."""
        if incoming.formerly:
            move_chat(tx, incoming)
            return ""
        guest = self._doorman().admit(tx, incoming)
        if isinstance(guest, str):
            return guest
        admission = Admission(guest=guest, keeper=keeper_of(tx, guest.key, self._name, self._rooms.worker))
        if not (incoming.button or incoming.reaction):
            admission = self._kept(tx, admission, incoming)
            if not admission.item:
                return ""
        if admission.keeper != self._rooms.worker:
            write_letter(tx, admission.keeper, Letter(incoming, admission.session_id, admission.item))
            if admission.notice:
                queue_notice(tx, admission.session_id, incoming.address, Content(text=admission.notice))
        return admission

    def _kept(self, tx: Transaction, admission: Admission, incoming: Incoming) -> Admission:
        """Put it into the inbox of its conversation, which is begun if there is none; no item for what came before."""
        guest = admission.guest
        begun, session_id, over, notice = self._session(tx, guest, incoming)
        if over:
            end_background(tx, over)
        message = Admitted(
            role="user",
            parts=_words(incoming),
            at=incoming.at,
            author=incoming.sender.name,
            platform_message_id=incoming.message_id or None,
            route=_route(incoming),
            attachments=incoming.attachments,
            sender=chat_sender(self._name, incoming.sender.id),
        )
        item = tx.inbox.add(
            arrival_of(session_id, self._name, incoming.external_id, message, kind=self._kind(incoming))
        )
        if item is not None and item.kind == COMMAND:
            tx.inbox.settle([item.id])
        return Admission(
            guest=guest,
            keeper=admission.keeper,
            session_id=session_id,
            item=item.id if item else 0,
            over=over,
            notice=notice,
            begun=begun,
        )

    def _kind(self, incoming: Incoming) -> str:
        if is_command(incoming.text):
            return COMMAND
        return STEERING if self._busy() == "steer" else "message"

    async def _see_to(self, incoming: Incoming, admission: Admission) -> None:
        """Act on what was kept; where that fails it waits in the inbox, and is taken up again."""
        try:
            if admission.over:
                self._end(admission.over)
            if not admission.item:
                await self._answered(incoming, admission.guest)
                return
            key, session_id = admission.guest.key, admission.session_id
            async with self._rooms.in_turn(key, incoming.address, session_id) as room:
                await self._stir(room, incoming, admission)
        except StoreError as error:
            self._warn(admission, error)
            if is_command(incoming.text):  # nobody takes it up again: it is done with in the inbox
                await asyncio.sleep(_STORE_PAUSE)
                self._rooms.start(self._see_to(incoming, admission))
        except TalariaError as error:
            self._warn(admission, error)
            await self._tell(incoming, admission, error)
        except Exception:  # a bug keeps one conversation from being opened, and no other
            log.exception("%s: a conversation was not opened", self._name)

    def _warn(self, admission: Admission, error: TalariaError) -> None:
        with bound(SessionContext(session_id=admission.session_id, platform=self._name)):
            log.warning("%s: a message waits: %s", self._name, error)

    async def _answered(self, incoming: Incoming, guest: Guest) -> None:
        """Take a button or a mark, which never is anything but the answer to a question, however old it is."""
        room = self._rooms.find(guest.key)
        if not incoming.button:
            if room is not None:
                await room.marked(incoming.message_id, incoming.reaction, incoming.sender.id, owner=guest.is_owner)
        elif room is None:
            await self._notify(incoming, guest, _NOT_OPEN)
        elif not room.asking.press(incoming.button, incoming.sender.id, owner=guest.is_owner):
            await self._notify(incoming, guest, _NOT_YOURS if room.asking.is_open(incoming.button) else _NOT_OPEN)

    async def _notify(self, incoming: Incoming, guest: Guest, text: str) -> None:
        """Answer a button that does nothing."""
        content = Content(text=text, reply_to=incoming.message_id)

        def work(tx: Transaction) -> None:
            bound = tx.bindings.get(guest.key)
            if bound is not None:
                key = f"button:{self._name}:{incoming.external_id}"
                queue_notice(tx, bound.session_id, incoming.address, content, key)

        await self._store.write(work)
        await self._store.hint(OUTBOX)

    async def _stir(self, room: Room, incoming: Incoming, admission: Admission) -> None:
        guest = admission.guest
        if admission.notice:
            room.show(admission.notice)
        if is_command(incoming.text):
            room.seat.wish = structs.replace(room.seat.wish, owner=guest.owner, audience=guest.audience)
            author = Author(incoming.sender.name or incoming.sender.id, guest.is_owner, incoming.sender.id)
            room.use(incoming.text, author, guest.commands, by=incoming.sender.id)
            return
        if await self._is_answer(room, incoming, admission):
            return
        await room.used()
        conversation = room.seat.chat.conversation
        if self._busy() == "interrupt":
            conversation.interrupt(admission.item)
        conversation.nudge(steered=self._busy() == "steer")
        if room.elsewhere is not None:
            await room.elsewhere(self._busy())

    async def _is_answer(self, room: Room, incoming: Incoming, admission: Admission) -> bool:
        """Tell whether this was the answer to a question, which then is no message any more."""
        by, owner = incoming.sender.id, admission.guest.is_owner
        if incoming.vouched or not room.asking.fits(incoming.text, by, owner=owner):
            return False  # what a program sends is news, not an answer
        taken = await self._store.write(lambda tx: _take_back(tx, admission))
        return taken and room.asking.write(incoming.text, by, owner=owner)

    async def _tell(self, incoming: Incoming, admission: Admission, error: TalariaError) -> None:
        """Tell a person, once, why they get no answer."""
        reason = error.for_owner if admission.guest.is_owner else error.public
        content = Content(text=f"What you wrote waits: {reason}", reply_to=incoming.message_id)
        address, key = incoming.address, f"trouble:{admission.session_id}:{admission.item}"
        try:
            await self._store.write(lambda tx: queue_notice(tx, admission.session_id, address, content, key))
        except StoreError as failure:
            log.warning("%s: nobody was told: %s", self._name, failure)

    def _session(self, tx: Transaction, guest: Guest, incoming: Incoming) -> tuple[bool, SessionId, SessionId, str]:
        """Return whether one is begun, the conversation of a place, the one that is over, and what to say of that."""
        begun, (bound, over, notice) = False, self._bound(tx, guest, incoming)
        if not bound:
            # Whoever else begins one here waits at this row until this is committed, and then finds it.
            lock = tx.leases.acquire(f"place:{guest.key}", _MOMENT)
            bound, over, notice = self._bound(tx, guest, incoming)
            begun, bound = not bound, bound or self._begin(tx, guest, incoming)
            if lock is not None:
                tx.leases.release(lock)
        return begun, bound, over, notice

    def _bound(self, tx: Transaction, guest: Guest, incoming: Incoming) -> tuple[SessionId, SessionId, str]:
        """Return the conversation of a place; none where another is to begin, and which is over then."""
        bound = tx.bindings.get(guest.key)
        session = tx.sessions.get(bound.session_id) if bound else None
        if bound is None or session is None:
            return _NOTHING, _NOTHING, ""
        doorman = self._doorman()
        session = welcome(tx, session, incoming.address, guest.owner)
        if not doorman.goes_on(tx, session, guest, incoming):
            return _NOTHING, _NOTHING, ""
        notice = doorman.begins_anew(tx, bound, incoming.at)
        return (_NOTHING, bound.session_id, notice) if notice else (bound.session_id, _NOTHING, "")

    def _begin(self, tx: Transaction, guest: Guest, incoming: Incoming) -> SessionId:
        made = tx.sessions.create(NewSession(source=self._name, owner=guest.owner, audience=guest.audience))
        tx.bindings.bind(guest.key, made.id, incoming.address)
        tell_news(tx, made.id, incoming.address)
        return made.id


def _words(incoming: Incoming) -> tuple[Text, ...]:
    if incoming.text or incoming.attachments:
        return (Text(incoming.text),) if incoming.text else ()
    return (Text("(an empty message)"),)


def _route(incoming: Incoming) -> Route:
    sender = incoming.sender
    return Route(
        incoming.address,
        incoming.message_id,
        user_id=sender.id,
        user_name=sender.name,
        chat_name=incoming.chat_name,
        spoken=any(one.kind == "voice" for one in incoming.attachments),
    )


def _take_back(tx: Transaction, admission: Admission) -> bool:
    """Take something out of the inbox again, unless its turn has begun."""
    waiting = [item for item in tx.inbox.unsettled(admission.session_id) if item.id == admission.item]
    if not waiting or waiting[0].state != "waiting":
        return False
    tx.inbox.settle([admission.item])
    return True
