"""What the people at one place see of a turn, whichever process runs it, and what they are asked for it."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from talaria.commands.command import Display
from talaria.core.addresses import Address, Route
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId
from talaria.gateway.asking import Asking
from talaria.gateway.marking import AT_WORK, NOTHING, mark
from talaria.gateway.streaming import Preview, Stage
from talaria.sessions.answering import Answers, answer

_NOT_HERE = "only the owner of this agent may allow that, who is not in this chat"


class Sight(Struct, frozen=True, kw_only=True):
    """How turns are shown at a place: on which stage, how much of them, and whom to ask."""

    address: Address
    stage: Stage
    asking: Asking
    display: Callable[[], Display]
    reactions: Callable[[], bool]
    is_owner: Callable[[str], bool | None]


class View:
    """Shows one turn after the other as tasks of ``jobs``; `happens` takes note of what happens and never waits."""

    def __init__(self, sight: Sight, jobs: asyncio.TaskGroup) -> None:
        self._sight = sight
        self._jobs = jobs
        self._asker = ""
        self._marked: Route | None = None
        self._preview: Preview | None = None
        self._showing: asyncio.Task[None] | None = None
        self._left = False

    def happens(self, event: TurnEvent, session_id: SessionId, answers: Answers) -> None:
        """Let people see what happens in a turn of a conversation, and be asked what it asks."""
        if isinstance(event, TurnBegan):
            self._began(event, session_id)
        elif self._preview is not None:
            self._preview.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._ask(event, answers)
        elif isinstance(event, TurnEnd):
            self._mark(NOTHING)

    def end(self) -> None:
        """Show no more of a turn: it is over, or goes on elsewhere."""
        if self._preview is not None:
            self._preview.end()
            self._preview = None

    def leave(self) -> None:
        """Show no more of a turn, and ask nothing for it: its conversation is at another place now."""
        self._left = True
        self.end()
        self._mark(NOTHING)

    def _began(self, began: TurnBegan, session_id: SessionId) -> None:
        self.end()
        sight, self._left = self._sight, False
        self._asker = began.route.user_id if began.route else ""
        self._marked = began.route if sight.reactions() else None
        self._mark(AT_WORK)
        if began.route is not None and began.route.address.platform == sight.address.platform:
            self._preview = Preview(sight.stage, session_id, began.turn_id, began.route, sight.display)
            self._showing = self._jobs.create_task(_behind(self._showing, self._preview))

    def _ask(self, event: ApprovalAsked | QuestionAsked, answers: Answers) -> None:
        """Put a question of the turn to whoever may answer it: approvals are the owner's, where one is named."""
        if self._left:
            return
        whom = self._asker
        if isinstance(event, ApprovalAsked) and self._sight.is_owner(whom) is False:
            if self._sight.address.chat_type == "private":
                answers.answer(event.id, _NOT_HERE)
                return
            whom = ""
        self._jobs.create_task(self._ask_after_preview(event, answers, _Asker(self._sight.asking, whom), self._preview))

    async def _ask_after_preview(
        self, event: ApprovalAsked | QuestionAsked, answers: Answers, asker: "_Asker", preview: Preview | None
    ) -> None:
        """Ask when people have seen what leads to the question."""
        if preview is not None:
            await preview.flushed()
        await answer(event, answers, asker, markdown=True)

    def _mark(self, emoji: str) -> None:
        """Mark the message that is worked on, if that is wanted."""
        if self._marked is not None:
            self._jobs.create_task(mark(self._sight.stage, self._marked, emoji))


class _Asker(Struct, frozen=True):
    """Implements `Asks` for what a turn wants to know from somebody."""

    asking: Asking
    whom: str

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        return await self.asking.choose(self.whom, question, choices)

    async def ask(self, question: str) -> str:
        return await self.asking.ask(self.whom, question)


async def _behind(before: asyncio.Task[None] | None, preview: Preview) -> None:
    """Show a turn when the preview before has ended: it may be of the same turn, which another process ran."""
    if before is not None:
        await asyncio.wait([before])
    await preview.serve()
