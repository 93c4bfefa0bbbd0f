"""One place on a chat network, with the conversation that is open there."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from talaria.commands.command import Author, Command, Display, Errand
from talaria.commands.house import House
from talaria.commands.using import use_command
from talaria.contracts.platform import Abilities, Content
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEvent
from talaria.core.ids import SessionId
from talaria.gateway.asking import Asking
from talaria.gateway.streaming import Preview, Stage
from talaria.sessions.answering import answer
from talaria.sessions.chat import ChatWish
from talaria.sessions.outgoing import queue_notice
from talaria.sessions.seat import Seat

_NOT_HERE = "only the owner of this agent may allow that, who is not in this chat"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Display).decode


# Whoever uses the command that this task works on: what it asks is put to them.
_visitor: ContextVar[str] = ContextVar("visitor", default="")


class Door(Struct, frozen=True, kw_only=True):
    """What the rooms of one network share: what it can do, how delivery is woken, where replies are seen to grow.

    ``is_owner`` tells whether somebody is the owner of this agent; ``None`` as long as nobody is named so.
    """

    house: House
    abilities: Abilities
    wake_delivery: Callable[[], None]
    stage: Stage
    is_owner: Callable[[str], bool | None]


class _Asker(Struct, frozen=True):
    """Implements `Asks` for what a turn wants to know from somebody."""

    asking: Asking
    whom: str

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        return await self.asking.choose(self.whom, question, choices)

    async def ask(self, question: str) -> str:
        return await self.asking.ask(self.whom, question)


class Room:
    """Implements `Place` for commands, and `CachedAgent`: the agent of its conversation is ready as long as it is."""

    def __init__(self, key: str, address: Address, wish: ChatWish, door: Door, jobs: asyncio.TaskGroup) -> None:
        self.key = key
        self.name = address.platform
        self.address: Address = address
        self.display = Display()
        self.active_at: datetime | None = None
        self._asker = ""
        self._moving = asyncio.Lock()
        self._preview: Preview | None = None
        self._door = door
        self._jobs = jobs
        self.asking = Asking(self.post, buttons=door.abilities.buttons)
        self.seat = Seat(door.house, wish, self._event, jobs, key=key, address=address)

    @property
    def signature(self) -> str:
        """What its agent is made of."""
        return self.seat.chat.signature if self.seat.is_open else ""

    @property
    def is_busy(self) -> bool:
        """Whether anything goes on here, be it that a goal waits for its time."""
        return self.seat.is_open and self.seat.chat.conversation.engaged

    async def open(self) -> None:
        """Open the conversation that is to be here."""
        self.display = await self.seat.store.read(self._kept_display)
        await self.seat.open()
        self.active_at = datetime.now(UTC)

    async def be_at(self, session_id: SessionId) -> None:
        """See to it that this conversation is open here."""
        async with self._moving:
            if self.seat.session_id != session_id:
                await self.seat.move_to(session_id)
        self.active_at = datetime.now(UTC)

    async def release_clients(self) -> None:
        """Let go of the agent, but not of the folder and the processes of its conversation."""
        self.end_preview()
        await self.seat.release()

    async def close(self) -> None:
        """Leave the conversation, and end what it has started."""
        self.end_preview()
        await self.seat.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that ends with the gateway at the latest."""
        self._jobs.create_task(work)

    def end_preview(self) -> None:
        """Show no more of a turn: it is over, or goes on elsewhere."""
        if self._preview is not None:
            self._preview.end()
            self._preview = None

    async def use(self, text: str, author: Author, commands: tuple[Command, ...], *, by: str) -> None:
        """Use one of these commands here; what it asks is put to whoever uses it."""
        _visitor.set(by)
        errand = Errand(
            words="",
            seat=self.seat,
            place=self,
            house=self._door.house,
            commands=commands,
            author=author,
        )
        await use_command(text, errand)

    def show(self, text: str) -> None:
        """Tell the people here something; the text is Markdown."""
        self._jobs.create_task(self.post(Content(text=text)))

    async def post(self, content: Content) -> None:
        """Put something into the outbox for this place."""
        session_id = self.seat.session_id
        await self.seat.store.write(lambda tx: queue_notice(tx, session_id, self.address, content))
        self._door.wake_delivery()

    def change_display(self, display: Display) -> None:
        """Show this much from now on."""
        self.display = display
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
            self._asker = event.route.user_id if event.route else ""
            self._begin_preview(event)
        elif self._preview is not None:
            self._preview.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._ask(event)

    def _ask(self, event: ApprovalAsked | QuestionAsked) -> None:
        """Put a question of the turn to whoever may answer it: approvals are the owner's, where one is named."""
        questions, whom = self.seat.chat.questions, self._asker
        is_owner = self._door.is_owner(whom)
        if isinstance(event, ApprovalAsked) and is_owner is False:
            if self.address.chat_type == "private":
                questions.answer(event.id, _NOT_HERE)
                return
            whom = ""
        self._jobs.create_task(answer(event, questions, _Asker(self.asking, whom)))

    def _begin_preview(self, began: TurnBegan) -> None:
        """Let the people here see the turn go on."""
        self.end_preview()
        if began.route is not None and began.route.address.platform == self.name:
            route, session_id = began.route, self.seat.session_id
            self._preview = Preview(self._door.stage, session_id, began.turn_id, route, lambda: self.display)
            self._jobs.create_task(self._preview.serve())

    @property
    def _display_key(self) -> str:
        return f"display:{self.key}"

    def _kept_display(self, tx: Transaction) -> Display:
        entry = tx.state.get(self._display_key)
        return _decode(entry.value) if entry else self.display
