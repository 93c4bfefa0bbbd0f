"""One place on a chat network, with the conversation that is open there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, field, structs

from talaria.commands.command import Author, Command, Display, Errand, Service
from talaria.commands.house import House
from talaria.commands.using import use_command
from talaria.contracts.follower import Ending
from talaria.contracts.platform import Abilities, Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.outbox import OutboxFilter
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError
from talaria.core.events import (
    Noticed,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
    TurnFailed,
)
from talaria.core.ids import SessionId, new_id
from talaria.gateway.asking import Asking
from talaria.gateway.decision import show_decision
from talaria.gateway.footer import runtime, with_footer
from talaria.gateway.outage_notices import OutageNotices
from talaria.gateway.placing import bounded
from talaria.gateway.replies import ReplyFollower
from talaria.gateway.streaming import Stage
from talaria.gateway.view import Sight, View
from talaria.sessions.chat import ChatWish
from talaria.sessions.conversation import Conversation
from talaria.sessions.insisting import HELD_UP, insist
from talaria.sessions.outgoing import queue_notice
from talaria.sessions.seat import Seat
from talaria.sessions.turn_log import model_steps
from talaria.settings.chats import ChatNetwork

_COMMAND_SECONDS = 30.0
_CANCEL_MOVE = ["/move", "cancel"]
AT_ONCE = frozenset({"/stop", "/status", "/queue", "/steer", "/approve", "/deny"})

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Display).decode


# Whoever uses the command that this task works on: what it asks is put to them.
_visitor: ContextVar[str] = ContextVar("visitor", default="")


class Door(Struct, frozen=True, kw_only=True):
    """What the rooms of one network share: what it can do, how delivery is woken, where replies are seen to grow.

    ``is_owner`` tells whether somebody is the owner of this agent; ``None`` as long as nobody is named so.
    ``manner`` is what the settings say of it. ``outage`` knows which chats were told that the store cannot be used.
    """

    house: House
    abilities: Abilities
    wake_delivery: Callable[[], None]
    stage: Stage
    is_owner: Callable[[str], bool | None]
    manner: Callable[[], ChatNetwork]
    service: Service | None = None
    outage: OutageNotices = field(default_factory=OutageNotices)


class Room:
    """Implements `Place` for commands, and `CachedAgent`: the agent of its conversation is ready as long as it is.

    ``at_work`` says that this process takes a turn here; while another does, ``elsewhere`` lets that heed what is said
    here. ``let_go`` lets another room take this one's place.
    """

    def __init__(self, key: str, address: Address, wish: ChatWish, door: Door, jobs: asyncio.TaskGroup) -> None:
        self.key = key
        self.name = address.platform
        self.address: Address = address
        self._chosen: Display | None = None
        self.active_at: datetime | None = None
        self._signature = ""
        self._moving = asyncio.Lock()
        self._using: asyncio.Task[None] | None = None
        self.at_work = False
        self.elsewhere: Callable[[str], Awaitable[None]] | None = None
        self.let_go: Callable[[], object] = lambda: None
        self._door = door
        self._jobs = jobs
        self.asking = Asking(self.post, buttons=door.abilities.buttons, closed=self._close_question)
        sight = Sight(
            address=address,
            stage=door.stage,
            asking=self.asking,
            display=lambda: self.display,
            reactions=lambda: door.manner().reactions,
            is_owner=door.is_owner,
        )
        self.view = View(sight, jobs)
        replies = ReplyFollower(door.wake_delivery, self._dressed)
        wish = structs.replace(wish, followers=(replies, *wish.followers), held_up=self._held_up, moved=self._moved)
        self.seat = Seat(door.house, wish, self._event, jobs, key=key, address=address)
        self.seat.go_on = self._go_on

    @property
    def display(self) -> Display:
        """What is shown here beside replies: what was chosen here, else what the settings say of the network."""
        if self._chosen is not None:
            return self._chosen
        manner = self._door.manner()
        return Display(
            progress=manner.progress, reasoning=manner.reasoning, footer=manner.footer, streaming=manner.streaming
        )

    @property
    def signature(self) -> str:
        """What its agent is made of; the one before, while one conversation is exchanged for another."""
        if self.seat.is_open:
            self._signature = self.seat.chat.signature
        return self._signature

    @property
    def is_busy(self) -> bool:
        """Whether anything goes on here, be it that a goal waits for its time, or that another conversation comes."""
        return not self.seat.is_open or self.seat.chat.conversation.engaged

    async def open(self) -> None:
        """Open the conversation that is to be here."""
        self._chosen = await self.seat.store.read(self._kept_display)
        await self.seat.open()
        self.active_at = datetime.now(UTC)

    async def be_at(self, session_id: SessionId) -> None:
        """See to it that this conversation is open here."""
        async with self._moving:
            await self.seat.settled()
            if self.seat.session_id != session_id and not await self.seat.store.read(self._is_at_home):
                await self.seat.move_to(session_id)
        self.active_at = datetime.now(UTC)

    def _is_at_home(self, tx: Transaction) -> bool:
        """Tell whether this place is bound to the conversation that is open here."""
        bound = tx.bindings.get(self.key)
        return bound is not None and bound.session_id == self.seat.session_id

    async def release_clients(self) -> None:
        """Release the agent, but not the folder, the processes and the MCP servers of its conversation."""
        self.view.end()
        await self.seat.release()

    async def close(self) -> None:
        """Leave the conversation for good, and end what it has started."""
        if self.seat.is_open:
            self.seat.chat.end_work()
        self.view.end()
        await self.seat.close()

    def use(self, text: str, author: Author, commands: tuple[Command, ...], *, by: str) -> None:
        """Begin to use one of these commands here, behind those before it, unless it is one that cannot wait."""
        urgent = text.partition(" ")[0] in AT_ONCE or text.split() == _CANCEL_MOVE
        before = None if urgent else self._using
        self._using = self._jobs.create_task(self._use(text, author, commands, by=by, before=before))

    async def used(self) -> None:
        """Wait until the last command is done, or asks something: what was said behind it comes behind it."""
        await self._done(self._using)

    async def _done(self, command: asyncio.Task[None] | None) -> None:
        if command is not None and not command.done() and not self.asking.waiting:
            asked = asyncio.ensure_future(self.asking.asked.wait())
            await asyncio.wait({command, asked}, timeout=_COMMAND_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()

    def _go_on(self, conversation: Conversation) -> None:
        """Go on with what waits in a conversation, behind the commands that were given before it came here."""

        async def behind_commands() -> None:
            await self.used()
            if self.seat.is_open and self.seat.chat.conversation is conversation:
                conversation.wake()

        self._jobs.create_task(behind_commands())

    async def _use(
        self,
        text: str,
        author: Author,
        commands: tuple[Command, ...],
        *,
        by: str,
        before: asyncio.Task[None] | None,
    ) -> None:
        """Use a command; what it asks is put to whoever uses it."""
        await self._done(before)
        _visitor.set(by)
        errand = Errand(
            words="",
            seat=self.seat,
            place=self,
            house=self._door.house,
            commands=commands,
            author=author,
            service=self._door.service,
        )
        await use_command(text, errand)

    def show(self, text: str) -> None:
        """Tell the people here something; the text is Markdown."""
        self._jobs.create_task(self.post(Content(text=text)))

    async def post(self, content: Content, key: str = "") -> None:
        """Put something into the outbox for this place; a key makes it one."""
        session_id, key = self.seat.session_id, key or new_id()
        store = self.seat.store
        await insist(lambda: store.write(lambda tx: queue_notice(tx, session_id, self.address, content, key)))
        self._door.wake_delivery()

    def _close_question(self, key: str, content: Content, decision: str) -> None:
        self._jobs.create_task(show_decision(self._door.stage, self.address, key, content, decision))

    def change_display(self, display: Display) -> None:
        """Show this much from now on."""
        self._chosen = display
        key, value = self._display_key, _encode(display).decode()

        async def keep() -> None:
            await self.seat.store.write(lambda tx: tx.state.put(key, value))

        self._jobs.create_task(keep())

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let a person choose, and return which; ``None`` when they do not."""
        return await self.asking.choose(_visitor.get(), question, choices)

    def _event(self, event: TurnEvent) -> None:
        self.active_at = datetime.now(UTC)
        if isinstance(event, TurnBegan):
            self.at_work = True
        elif isinstance(event, TurnEnd):
            self.at_work = False
            if not isinstance(event, TurnFailed):  # its end is in the store
                self._door.outage.end()
        elif isinstance(event, Noticed) and event.lasting:
            self.show(event.text)
        self.view.happens(event, self.seat.session_id, self.seat.chat.questions)

    def _moved(self) -> None:
        """Let go of the running turn: its conversation is somewhere else now."""
        self.view.leave()
        self.let_go()

    def _held_up(self) -> None:
        """Notify this chat, once in an outage, that a turn waits for the store."""
        if self._door.outage.claim(self.address):
            self._jobs.create_task(self._excuse())

    async def _excuse(self) -> None:
        """Say so past the outbox, into which nothing can be put."""
        stage = self._door.stage
        try:
            await bounded(stage.platform.send(self.address, Content(text=HELD_UP), new_id()), stage.call)
        except PlatformError as error:
            log.warning("%s: nobody was told that a turn waits: %s", self.name, error)

    async def marked(self, message_id: str, emoji: str, by: str, *, owner: bool) -> None:
        """Take a mark that somebody put on a message: it may answer what is asked there."""
        keys = self.asking.waiting
        wanted = [OutboxFilter(key=key, sent=True) for key in keys]
        found = await self.seat.store.read(lambda tx: [item for one in wanted for item in tx.outbox.find(one)])
        for item in found:
            if item.reference == message_id:
                self.asking.mark(item.key, emoji, by, owner=owner)

    @property
    def _display_key(self) -> str:
        return f"display:{self.key}"

    def _kept_display(self, tx: Transaction) -> Display | None:
        entry = tx.state.get(self._display_key)
        return _decode(entry.value) if entry else None

    def _dressed(self, tx: Transaction, ending: Ending, text: str) -> str:
        """Return a reply with the line below it, where that is wanted."""
        if not self.display.footer or not isinstance(ending.end, TurnAnswered):
            return text
        chat = self.seat.chat
        steps = model_steps(tx, ending.turn_id)
        return with_footer(text, runtime(steps, chat.model, chat.info, chat.workspace.folder))
