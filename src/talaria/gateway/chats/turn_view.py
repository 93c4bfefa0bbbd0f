"""Display of a session's turns in its chat: preview, reactions, questions and their decisions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, cast

from msgspec import Struct

from talaria.commands.command import Display
from talaria.contracts.platform import Button, Content, MarkingPlatform, MessageRef
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import PlatformError, StoreError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import is_same_sender
from talaria.gateway.outbound.message_writer import TYPING, call_with_timeout
from talaria.gateway.outbound.preview import Preview, PreviewOptions
from talaria.gateway.outbound.text_parts import measure, split_content
from talaria.runtime.questions import AnswerReceiver, answer

_VARIATION_SELECTOR = "\N{VARIATION SELECTOR-16}"  # appended to some emoji by some networks
_APPROVING, _DENYING = ("👍", "✅"), ("👎", "❌")


class _OpenPrompt(Struct, frozen=True):
    addressee: str
    choices: tuple[str, ...]
    answer: "asyncio.Future[int | str]"


class ChoicePrompts:
    """Open questions of one chat.

    ``post`` queues a message under a key. ``patience`` returns how many seconds to wait for an answer. ``closed`` is
    called with key, content and decision when a question with buttons ends. Each question may be answered by its
    addressee and by the owner; without an addressee only by the owner.
    """

    def __init__(
        self,
        post: Callable[[Content, str], Awaitable[None]],
        *,
        buttons: bool,
        patience: Callable[[], float],
        closed: Callable[[str, Content, str], None] = lambda _key, _content, _format_decision: None,
    ) -> None:
        self._post = post
        self._on_closed = closed
        self._buttons = buttons
        self._patience = patience
        self._open: dict[str, _OpenPrompt] = {}
        self.asked = asyncio.Event()  # set while a question is open

    async def choose(self, addressee: str, question: str, choices: Sequence[str]) -> int | None:
        """Post a question and return the index of the answer; ``None`` if there was none in time."""
        number = new_id()
        listed = "\n".join(f"{position}. {choice}" for position, choice in enumerate(choices, 1))
        hint = "" if self._buttons else "\n\nReply with the number."
        buttons = tuple(Button(choice, f"{number}:{position}") for position, choice in enumerate(choices))
        text = question if self._buttons else f"{question}\n\n{listed}{hint}"
        content = Content(text=text, buttons=buttons if self._buttons else ())
        answer = await self._wait(number, _open_prompt(addressee, tuple(choices)), content)
        return answer if isinstance(answer, int) else None

    async def ask(self, addressee: str, question: str) -> str:
        """Post a question and return the next text written; empty if there was none in time."""
        answer = await self._wait(new_id(), _open_prompt(addressee, ()), Content(text=question))
        return answer if isinstance(answer, str) else ""

    def press(self, value: str, by: str, *, owner: bool = False) -> bool:
        """Answer by a button; ``False`` if its question is closed or for another person."""
        number, _, position = value.rpartition(":")
        found = self._open.get(number)
        if found is None or not position.isdecimal() or int(position) >= len(found.choices):
            return False
        return _may_answer(found, by, owner=owner) and _resolve(found, int(position))

    def is_open(self, value: str) -> bool:
        """Return whether a button belongs to an open question."""
        return value.rpartition(":")[0] in self._open

    @property
    def waiting(self) -> list[str]:
        """The keys of the open questions, oldest first."""
        return list(self._open)

    def mark(self, key: str, emoji: str, by: str, *, owner: bool = False) -> bool:
        """Answer by a reaction: thumbs up or down for the first or last choice, or a number."""
        found = self._open.get(key)
        if found is None or not _may_answer(found, by, owner=owner):
            return False
        sign = emoji.removesuffix(_VARIATION_SELECTOR)
        signs = {**dict.fromkeys(_APPROVING, 0), **dict.fromkeys(_DENYING, len(found.choices) - 1)}
        signs |= {f"{position}\N{COMBINING ENCLOSING KEYCAP}": position - 1 for position in range(1, 10)}
        position = signs.get(sign.replace(_VARIATION_SELECTOR, ""))
        return position is not None and 0 <= position < len(found.choices) and _resolve(found, position)

    def fits(self, text: str, by: str, *, owner: bool = False) -> bool:
        """Return whether a text can answer an open question of this person."""
        return self._find_prompt(text, by, owner=owner) is not None

    def write(self, text: str, by: str, *, owner: bool = False) -> bool:
        """Answer the oldest open question by a text, if it fits."""
        found = self._find_prompt(text, by, owner=owner)
        if found is None:
            return False
        return _resolve(found, int(text) - 1 if found.choices else text)

    def _find_prompt(self, text: str, by: str, *, owner: bool) -> _OpenPrompt | None:
        """Return the oldest question that this person may answer, if this text can be the answer."""
        for found in self._open.values():
            if found.answer.done() or not text or not _may_answer(found, by, owner=owner):
                continue
            if not found.choices:
                return found
            if text.strip().isdecimal() and 0 < int(text) <= len(found.choices):
                return found
        return None

    async def _wait(self, number: str, found: _OpenPrompt, content: Content) -> int | str | None:
        self._open[number] = found
        self.asked.set()
        try:
            await self._post(content, number)
            async with asyncio.timeout(self._patience()):
                return await found.answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]
            if not self._open:
                self.asked.clear()
            if content.buttons:
                self._on_closed(number, content, _format_decision(found))


def _open_prompt(addressee: str, choices: tuple[str, ...]) -> _OpenPrompt:
    return _OpenPrompt(addressee, choices, asyncio.get_running_loop().create_future())


def _may_answer(found: _OpenPrompt, by: str, *, owner: bool) -> bool:
    """Return whether this person may answer; a sender without an id never matches the addressee."""
    return owner or is_same_sender(by, found.addressee)


def _format_decision(found: _OpenPrompt) -> str:
    """Return the text that is shown below a closed question."""
    if not found.answer.done() or found.answer.cancelled():
        return "*This question is no longer open.*"
    answer = found.answer.result()
    return f"▸ **{found.choices[answer]}**" if isinstance(answer, int) else "▸ *answered*"


def _resolve(found: _OpenPrompt, answer: int | str) -> bool:
    if found.answer.done():
        return False
    found.answer.set_result(answer)
    return True


_PATIENCE, _POLL_INTERVAL = 60.0, 0.2
log = logging.getLogger(__name__)


async def show_decision(options: PreviewOptions, address: Address, key: str, content: Content, decision: str) -> None:
    """Show the decision in the message queued under a key, and remove its buttons.

    If that fails, the buttons stay without effect.
    """
    if not options.platform.abilities.edits:
        return
    try:
        async with asyncio.timeout(_PATIENCE):
            message_id = await _wait_until_posted(options, key)
            while not options.throttle.take(address):  # noqa: ASYNC110 - a rate limit has no event to wait for
                await asyncio.sleep(options.throttle.delay(address))
        if message_id:
            shown = Content(text=_append_decision(options, content, decision))
            await call_with_timeout(options.platform.edit(MessageRef(address, message_id), shown), options.call)
    except (TimeoutError, PlatformError, StoreError) as error:
        log.info(
            "%s: couldn't remove the buttons of a question: %s",
            options.platform.name,
            str(error) or "it was not posted",
        )


async def _wait_until_posted(options: PreviewOptions, key: str) -> str:
    """Return the id of the message once it is sent; empty if sending failed."""

    def read_state(tx: Transaction) -> tuple[Literal["waiting", "sending", "sent", "failed"], str]:
        found = tx.outbox.find(OutboxFilter(key=key, sent=True))
        return (found[0].state, found[0].reference or "") if found else ("failed", "")

    while (found := await options.store.read(read_state))[0] in {"waiting", "sending"}:  # noqa: ASYNC110 - sent elsewhere
        await asyncio.sleep(_POLL_INTERVAL)
    return found[1]


def _append_decision(options: PreviewOptions, content: Content, decision: str) -> str:
    """Return the text of the message with the decision below it."""
    abilities = options.platform.abilities
    pieces = split_content(content, abilities)
    text = next((piece.text for piece in pieces if piece.buttons), pieces[0].text if pieces else "")
    space = abilities.text_limit - measure(f"\n\n{decision}", abilities.text_unit)
    while text and measure(text, abilities.text_unit) > space:
        text = text[: len(text) * 9 // 10]
    return f"{text}\n\n{decision}"


WORKING, NOTHING = "👀", ""


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

    def begin(
        self, began: TurnBegan, session_id: SessionId, display: Display, *, reactions: bool, is_new: bool
    ) -> None:
        """Start to show a turn, with a reaction on the message that it answers if ``reactions``.

        A turn that ``is_new`` was not shown anywhere before.
        """
        self.end()
        options, self._has_left = self._options, False
        self._sender_id = began.route.user_id if began.route else ""
        self._marked_route = began.route if reactions else None
        self._set_reaction(WORKING)
        if began.route is not None and began.route.address.platform == options.address.platform:
            preview = self._preview = Preview(
                options.preview, session_id, began.turn_id, began.route, display, is_new=is_new
            )
            before = self._show_task
            if before is None or before.done():
                self._show_task = self._jobs.create_task(preview.serve())
            else:
                self._show_task = self._jobs.create_task(_show_after(before, preview))

    def set_display(self, display: Display) -> None:
        """Change what is shown of the running turn from now on."""
        if self._preview is not None:
            self._preview.set_display(display)

    def on_event(self, event: TurnEvent, answers: AnswerReceiver) -> None:
        """Show an event of a turn after its beginning, and post the question that it asks."""
        if self._preview is not None:
            self._preview.handle_event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._ask(event, answers)
        elif isinstance(event, TurnEnd):
            self._preview = None
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
            await preview.wait_until_flushed()
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


async def _show_after(before: asyncio.Task[None], preview: Preview) -> None:
    """Show a turn after the previous preview has ended, which may show the same turn for another process."""
    await asyncio.wait([before])
    await preview.serve()
