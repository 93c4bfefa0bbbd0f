"""One place on a chat network, with the conversation that is open there."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from talaria.commands.command import Author, Command, Display, Errand
from talaria.commands.house import House
from talaria.commands.using import use_command
from talaria.contracts.platform import Abilities, Content
from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEvent
from talaria.gateway.asking import Asking
from talaria.gateway.streaming import Preview, Stage
from talaria.sessions.answering import answer
from talaria.sessions.chat import ChatWish
from talaria.sessions.outgoing import queue_notice
from talaria.sessions.seat import Seat

_encode = msgspec.json.Encoder().encode


class Door(Struct, frozen=True, kw_only=True):
    """What the rooms of one network share: what it can do, how delivery is woken, where replies are seen to grow."""

    house: House
    abilities: Abilities
    wake_delivery: Callable[[], None]
    stage: Stage


class Room:
    """Implements `Place` for commands, and `Asks` for what a turn wants to know."""

    def __init__(self, key: str, address: Address, wish: ChatWish, door: Door, jobs: asyncio.TaskGroup) -> None:
        self.key = key
        self.name = address.platform
        self.address: Address = address
        self.display = Display()
        self.asker = ""
        self._owners: set[str] = set()
        self._preview: Preview | None = None
        self._door = door
        self._jobs = jobs
        self.asking = Asking(self.post, self._may_answer, buttons=door.abilities.buttons)
        self.seat = Seat(door.house, wish, self._event, jobs, key=key, address=address)

    def spoken_to(self, by: str, *, owner: bool) -> None:
        """Take note of who speaks here: whoever asked for something may answer what it raises; so may the owner."""
        self.asker = by
        if owner:
            self._owners.add(by)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that ends with the gateway at the latest."""
        self._jobs.create_task(work)

    def end_preview(self) -> None:
        """Show no more of a turn: it is over, or goes on elsewhere."""
        if self._preview is not None:
            self._preview.end()
            self._preview = None

    async def use(self, text: str, author: Author, commands: tuple[Command, ...]) -> None:
        """Use one of these commands here."""
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
        key, value = f"display:{self.key}", _encode(display).decode()

        async def keep() -> None:
            await self.seat.store.write(lambda tx: tx.state.put(key, value))

        self._jobs.create_task(keep())

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let a person choose, and return which; ``None`` when they do not."""
        return await self.asking.choose(question, choices)

    async def ask(self, question: str) -> str:
        """Return what a person writes as the answer."""
        return await self.asking.ask(question)

    def _event(self, event: TurnEvent) -> None:
        if isinstance(event, TurnBegan):
            self._begin_preview(event)
        elif self._preview is not None:
            self._preview.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._jobs.create_task(answer(event, self.seat.chat.questions, self))

    def _begin_preview(self, began: TurnBegan) -> None:
        """Let the people here see the turn go on."""
        self.end_preview()
        if began.route is not None and began.route.address.platform == self.name:
            route, session_id = began.route, self.seat.session_id
            self._preview = Preview(self._door.stage, session_id, began.turn_id, route, lambda: self.display)
            self._jobs.create_task(self._preview.serve())

    def _may_answer(self, by: str) -> bool:
        return by == self.asker or by in self._owners
