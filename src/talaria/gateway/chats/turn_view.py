"""View of running turns in a chat: preview, reactions and questions, whichever process runs them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct

from talaria.commands.command import Display
from talaria.contracts.platform import MarkingPlatform, MessageRef
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import PlatformError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId
from talaria.gateway.chats.prompts import ChoicePrompts
from talaria.gateway.outbound.message_writer import TYPING, call_with_timeout
from talaria.gateway.outbound.preview import Preview, PreviewOptions
from talaria.runtime.questions import AnswerReceiver, answer

WORKING, NOTHING = "👀", ""


log = logging.getLogger(__name__)


async def set_reaction(preview: PreviewOptions, route: ReplyRoute, emoji: str) -> None:
    """Set a reaction on the message that a turn answers, if the network and rate limit allow it."""
    if (
        not preview.platform.abilities.reactions
        or not route.reply_to
        or not preview.throttle.take(route.address, TYPING)
    ):
        return
    platform = cast("MarkingPlatform", preview.platform)
    try:
        await call_with_timeout(platform.react(MessageRef(route.address, route.reply_to), emoji), preview.call)
    except PlatformError as error:
        log.info("%s: couldn't mark a message: %s", preview.platform.name, error)


_OWNER_ABSENT = "only this agent's owner can allow that, and they are not in this chat"


class TurnViewOptions(Struct, frozen=True, kw_only=True):
    """Options of a turn view: preview, and who is asked."""

    address: Address
    preview: PreviewOptions
    prompts: ChoicePrompts
    is_owner: Callable[[str], bool | None]


class TurnView:
    """View of the turns of one chat, one after the other, as tasks of ``jobs``.

    `on_event` never blocks.
    """

    def __init__(self, options: TurnViewOptions, jobs: asyncio.TaskGroup) -> None:
        self._options = options
        self._jobs = jobs
        self._sender_id = ""
        self._marked_route: ReplyRoute | None = None
        self._preview: Preview | None = None
        self._show_task: asyncio.Task[None] | None = None
        self._has_left = False

    def begin(self, began: TurnBegan, session_id: SessionId, display: Display, *, reactions: bool) -> None:
        """Start to show a turn, with a reaction on the message that it answers if ``reactions``."""
        self.end()
        options, self._has_left = self._options, False
        self._sender_id = began.route.user_id if began.route else ""
        self._marked_route = began.route if reactions else None
        self._set_reaction(WORKING)
        if began.route is not None and began.route.address.platform == options.address.platform:
            self._preview = Preview(options.preview, session_id, began.turn_id, began.route, display)
            self._show_task = self._jobs.create_task(_show_after(self._show_task, self._preview))

    def set_display(self, display: Display) -> None:
        """Change what is shown of the running turn from now on."""
        if self._preview is not None:
            self._preview.set_display(display)

    def on_event(self, event: TurnEvent, answers: AnswerReceiver) -> None:
        """Show an event of a turn after its beginning, and post the question that it asks."""
        if self._preview is not None:
            self._preview.event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._ask(event, answers)
        elif isinstance(event, TurnEnd):
            self._set_reaction(NOTHING)

    def end(self) -> None:
        """Stop the preview of a turn that is over or continues elsewhere."""
        if self._preview is not None:
            self._preview.end()
            self._preview = None

    def leave(self) -> None:
        """Stop showing a turn and its questions, because its session has moved to another chat."""
        self._has_left = True
        self.end()
        self._set_reaction(NOTHING)

    def _ask(self, event: ApprovalAsked | QuestionAsked, answers: AnswerReceiver) -> None:
        """Ask a question of the turn; approvals are for the owner, if the settings name one.

        In a private chat of another person an approval is refused at once.
        """
        if self._has_left:
            return
        addressee = self._sender_id
        if isinstance(event, ApprovalAsked) and self._options.is_owner(addressee) is False:
            if self._options.address.chat_type == "private":
                answers.answer(event.id, _OWNER_ABSENT)
                return
            addressee = ""
        self._jobs.create_task(
            self._ask_after_preview(event, answers, _Asker(self._options.prompts, addressee), self._preview)
        )

    async def _ask_after_preview(
        self, event: ApprovalAsked | QuestionAsked, answers: AnswerReceiver, asker: "_Asker", preview: Preview | None
    ) -> None:
        """Ask after the preview has shown what leads to the question."""
        if preview is not None:
            await preview.flushed()
        await answer(event, answers, asker, markdown=True)

    def _set_reaction(self, emoji: str) -> None:
        """Set a reaction on the message being processed, if reactions are enabled."""
        if self._marked_route is not None:
            self._jobs.create_task(set_reaction(self._options.preview, self._marked_route, emoji))


class _Asker(Struct, frozen=True):
    """Implementation of `Prompter` for the questions of a turn."""

    prompts: ChoicePrompts
    addressee: str

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        return await self.prompts.choose(self.addressee, question, choices)

    async def ask(self, question: str) -> str:
        return await self.prompts.ask(self.addressee, question)


async def _show_after(before: asyncio.Task[None] | None, preview: Preview) -> None:
    """Show a turn after the previous preview has ended, which may show the same turn for another process."""
    if before is not None:
        await asyncio.wait([before])
    await preview.serve()
