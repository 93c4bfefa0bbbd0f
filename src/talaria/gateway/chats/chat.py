"""Chat on a network, with the session that is open in it and the replies that it queues."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field, structs

from talaria.access.policy import Access
from talaria.commands.application import Application
from talaria.commands.command import DISPLAY, Author, Command, CommandContext, Display, GatewayControl, run_command
from talaria.commands.mcp import list_prompt_commands
from talaria.contracts.platform import Content, PlatformCapabilities
from talaria.contracts.provider import Effort, ModelInfo
from talaria.contracts.store import Transaction
from talaria.contracts.turns import AfterCommit, ModelStep, TurnResult
from talaria.core.addresses import Address
from talaria.core.aio import retry_write
from talaria.core.errors import PlatformError
from talaria.core.events import (
    Noticed,
    StoreBlocked,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
    TurnFailed,
)
from talaria.core.formatting import HARMFUL, format_money
from talaria.core.ids import SessionId, new_id
from talaria.gateway.chats.turn_view import ChoicePrompts, TurnView, TurnViewOptions, show_decision
from talaria.gateway.outbound.message_writer import BLANK_TEXT, POSTED_MESSAGES, call_with_timeout
from talaria.gateway.outbound.preview import PreviewOptions
from talaria.gateway.outbound.voice_replies import VoiceReplies
from talaria.gateway.receiver import OutageNotices
from talaria.runtime.active_session import ActiveSession
from talaria.runtime.agent_cache import SessionVersion
from talaria.runtime.open_session import OpenRequest
from talaria.runtime.outbox import queue_notice, queue_reply, queue_turn_result
from talaria.runtime.questions import AnswerReceiver
from talaria.runtime.runner import SessionRunner
from talaria.runtime.turn_log import read_model_steps
from talaria.runtime.workers import STORE_UNREACHABLE
from talaria.settings.model import LiveSettings
from talaria.settings.sections.chats import ChatNetworkSettings, find_room

_UNSAFE = re.compile(rf"{HARMFUL}|[`\n]")
_COMMAND_SECONDS = 30.0
_CANCEL_HANDOFF = ["/move", "cancel"]
IMMEDIATE_COMMANDS = frozenset({"/stop", "/status", "/queue", "/steer", "/approve", "/deny"})
# Id of the sender whose command runs in this task; its questions are for them.
_command_sender: ContextVar[str] = ContextVar("visitor", default="")

log = logging.getLogger(__name__)


class NetworkContext(Struct, frozen=True, kw_only=True):
    """State shared by the chats of one network: settings, capabilities, delivery, previews and outage notices."""

    application: Application
    abilities: PlatformCapabilities
    preview: PreviewOptions
    settings: LiveSettings
    voice: VoiceReplies | None = None
    service: GatewayControl | None = None
    outage: OutageNotices = field(default_factory=OutageNotices)

    @property
    def options(self) -> ChatNetworkSettings:
        """The network's section of the current settings."""
        return self.settings.current.platforms.get(self.preview.platform.name, ChatNetworkSettings())

    def is_owner(self, user_id: str) -> bool | None:
        """Return whether a user of the network owns this agent; ``None`` if the settings name no owner."""
        return Access(self.settings.current).is_owner(self.preview.platform.name, user_id)


class AgentVersion(Struct, frozen=True):
    """Version of everything that determines a chat's agent; equal versions need equal agents.

    ``settings`` is the generation of the settings; the chat's ids choose its prompt there.
    """

    settings: int
    chat_id: str
    thread_id: str
    session: SessionVersion


class Chat:
    """Live chat with its open session; a surface for commands and an entry of the agent cache.

    ``at_work`` is true while this process runs a turn here. While another process does, ``notify_remote_turn`` notifies
    it of new messages. ``release`` evicts this chat from the registry.
    """

    def __init__(
        self, key: str, address: Address, request: OpenRequest, network: NetworkContext, jobs: asyncio.TaskGroup
    ) -> None:
        self.key = key
        self.name = address.platform
        self.address: Address = address
        self.home_address = structs.replace(address, thread_id="") if network.abilities.threaded else address
        self._chosen_display: Display | None = None
        self.active_at: datetime | None = None
        self._signature = ""
        self.agent_version: AgentVersion | None = None
        self._switch_lock = asyncio.Lock()
        self._last_command: asyncio.Task[None] | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self.at_work = False
        self.notify_remote_turn: Callable[[str], Awaitable[None]] | None = None
        self.release: Callable[[], object] = lambda: None
        self._wait_for_updates: Callable[[], Awaitable[bool]] | None = None
        self._network = network
        self._jobs = jobs
        self.prompts = ChoicePrompts(
            self._post,
            buttons=network.abilities.buttons,
            closed=self._close_question,
            patience=lambda: network.settings.current.approval.timeout_seconds,
        )
        view_options = TurnViewOptions(
            address=address,
            preview=network.preview,
            prompts=self.prompts,
            is_owner=network.is_owner,
        )
        self.view = TurnView(view_options, jobs)
        replies = ReplyQueuer(self._make_footer, network.settings, network.voice)
        request = structs.replace(
            request,
            surface=structs.replace(request.surface, on_moved=self._leave_turn),
            turns=structs.replace(
                request.turns,
                follow_ups=(replies, *request.turns.follow_ups),
                waits_for_store=True,
                queues_replies=True,
            ),
        )
        self.active_session = ActiveSession(
            network.application, request, self._on_event, jobs, key=key, address=address
        )
        self.active_session.resume = self._resume

    @property
    def display(self) -> Display:
        """Return what is shown in addition to replies: as chosen in this chat, else by the network's settings."""
        options = self._network.options
        if options.rooms and find_room(options.rooms, self.address):  # a turn there may end without a reply
            return Display(progress="off", footer=options.footer, streaming=False)
        if self._chosen_display is not None:
            return self._chosen_display
        return Display(
            progress=options.progress, reasoning=options.reasoning, footer=options.footer, streaming=options.streaming
        )

    @property
    def signature(self) -> str:
        """The signature of the agent; the last one while the session is being switched."""
        if self.active_session.is_open:
            self._signature = self.active_session.chat.signature
        return self._signature

    @property
    def is_busy(self) -> bool:
        """Return whether work is running, a goal is waiting for its time, or the session is being switched."""
        return not self.active_session.is_open or self.active_session.chat.conversation.has_running_work

    async def open(
        self,
        agent_version: AgentVersion | None,
        *,
        wait_for_updates: Callable[[], Awaitable[bool]],
        release: Callable[[], object],
    ) -> None:
        """Open the session of this chat.

        ``agent_version`` was read before the call, so the agent is at least as new. ``wait_for_updates`` waits for the
        updates of this chat that are being dispatched, and returns whether there were any.
        """
        self._wait_for_updates, self.release = wait_for_updates, release
        self._chosen_display = await self.active_session.store.read(self._read_display)
        await self.active_session.open()
        self.agent_version = agent_version
        self.active_at = datetime.now(UTC)

    def confirm_agent(self, agent_version: AgentVersion | None, effort: Effort) -> None:
        """Set the effort of an agent with the right signature, and record the version this was checked for."""
        self.active_session.chat.conversation.set_effort(effort)
        if agent_version is not None and self.active_session.session_id == agent_version.session.session_id:
            self.agent_version = agent_version

    async def switch_session(self, session_id: SessionId) -> None:
        """Open this session, unless the open one has been bound to the chat in the meantime."""
        async with self._switch_lock:
            if await self.active_session.wait_for_switch() != session_id and not await self.active_session.store.read(
                self._is_bound_here
            ):
                await self.active_session.move_to(session_id)
        self.active_at = datetime.now(UTC)

    def _is_bound_here(self, tx: Transaction) -> bool:
        """Return whether the chat is bound to the session that is open in it."""
        bound = tx.bindings.get(self.key)
        return bound is not None and bound.session_id == self.active_session.session_id

    async def release_clients(self) -> None:
        """Release the agent, but keep the folder, processes and MCP servers of its session."""
        self.view.end()
        await self.active_session.release()

    async def close(self) -> None:
        """Close the session permanently, and end its background work."""
        if self.active_session.is_open:
            self.active_session.chat.end_background_work()
        self.view.end()
        await self.active_session.close()

    def use(self, text: str, author: Author, commands: tuple[Command, ...], *, by: str) -> None:
        """Start a command after the earlier ones, or at once if it is urgent."""
        urgent = text.partition(" ")[0] in IMMEDIATE_COMMANDS or text.split() == _CANCEL_HANDOFF
        before = None if urgent else self._last_command
        self._last_command = self._jobs.create_task(self._run_command(text, author, commands, by=by, before=before))

    async def process_message(self, item: int, busy: str) -> None:
        """Let the session process a new message in its inbox, after the commands that were sent before it.

        ``busy`` says what the message does while a turn is running: wait, interrupt it or steer it.
        """
        await self._finish_last_command()
        conversation = self.active_session.chat.conversation
        if busy == "interrupt":
            conversation.interrupt(item)
        conversation.wake(steered=busy == "steer")
        if self.notify_remote_turn is not None:
            await self.notify_remote_turn(busy)

    async def finish_commands(self) -> None:
        """Wait for all commands, also those that are sent meanwhile, because pending messages may be newer than them.

        Not for callers that hold the lock of the chat's updates.
        """
        await self._finish_last_command()
        while self._wait_for_updates is not None and await self._wait_for_updates():
            await self._finish_last_command()

    async def _finish_last_command(self) -> None:
        """Wait until the replies of the last command are queued, or it asks a question; at most 30 seconds."""
        await self._wait_for_command(self._last_command)

    async def _wait_for_command(self, command: asyncio.Task[None] | None) -> None:
        if command is not None and not command.done() and not self.prompts.waiting:
            asked = asyncio.ensure_future(self.prompts.asked.wait())
            await asyncio.wait({command, asked}, timeout=_COMMAND_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()

    def _resume(self, conversation: SessionRunner) -> None:
        """Process the pending messages of a session after the commands that were sent before them."""

        async def resume_after_commands() -> None:
            await self.finish_commands()
            if self.active_session.is_open and self.active_session.chat.conversation is conversation:
                conversation.wake()

        self._jobs.create_task(resume_after_commands())

    async def _run_command(
        self,
        text: str,
        author: Author,
        commands: tuple[Command, ...],
        *,
        by: str,
        before: asyncio.Task[None] | None,
    ) -> None:
        """Run a command; its questions are for the sender of the command."""
        await self._wait_for_command(before)
        _command_sender.set(by)
        context = CommandContext(
            arguments="",
            active_session=self.active_session,
            surface=self,
            application=self._network.application,
            commands=(*commands, *list_prompt_commands(self.active_session)),
            author=author,
            service=self._network.service,
        )
        await run_command(text, context)
        if self._posts:  # replies to later messages follow these
            await asyncio.wait(self._posts)

    def show(self, text: str) -> None:
        """Post a Markdown text in this chat."""
        post = self._jobs.create_task(self._post(Content(text=text)))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def _post(self, content: Content, key: str = "") -> None:
        """Queue a message for this chat, once per key."""
        session_id, key = self.active_session.session_id, key or new_id()
        store = self.active_session.store
        await retry_write(lambda: store.write(lambda tx: queue_notice(tx, session_id, self.address, content, key)))

    def _close_question(self, key: str, content: Content, decision: str) -> None:
        self._jobs.create_task(show_decision(self._network.preview, self.address, key, content, decision))

    def change_display(self, display: Display) -> None:
        """Change what is shown in this chat from now on, and store the choice."""
        self._chosen_display = display
        self.view.set_display(display)

        async def store_display() -> None:
            await self.active_session.store.write(lambda tx: DISPLAY.write(tx, self.key, display))

        self._jobs.create_task(store_display())

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Ask the sender of the command to choose, and return the index; ``None`` without an answer."""
        return await self.prompts.choose(_command_sender.get(), question, choices)

    def _on_event(self, event: TurnEvent) -> None:
        self.active_at = datetime.now(UTC)
        if isinstance(event, TurnBegan):
            self.at_work = True
        elif isinstance(event, TurnEnd):
            self.at_work = False
            if self._network.outage.notified and not isinstance(event, TurnFailed):  # its end is in the store
                self._network.outage.end()
        elif isinstance(event, StoreBlocked):
            self._notify_outage()
        elif isinstance(event, Noticed) and event.lasting and not event.posted:
            self.show(event.text)
        open_session = self.active_session.chat
        turn = open_session.conversation.turn
        is_new = turn is not None and not turn.is_resumed
        self.show_event(event, open_session.conversation.session_id, open_session.questions, is_new=is_new)

    def show_event(
        self, event: TurnEvent, session_id: SessionId, answers: AnswerReceiver, *, is_new: bool = False
    ) -> None:
        """Show an event of a turn, whichever process runs it; ``answers`` gets the answers to its questions.

        A turn that ``is_new`` began in this process and has always been here.
        """
        if isinstance(event, TurnBegan):
            reactions = self._network.options.reactions
            self.view.begin(event, session_id, self.display, reactions=reactions, is_new=is_new)
        else:
            self.view.on_event(event, answers)

    def _leave_turn(self) -> None:
        """Stop showing the running turn and release this chat, because its session has moved."""
        self.view.leave()
        self.release()

    def _notify_outage(self) -> None:
        """Notify this chat, once per outage, that a turn is waiting for the store."""
        if self._network.outage.claim(self.address):
            self._jobs.create_task(self._send_outage_notice())

    async def _send_outage_notice(self) -> None:
        """Send the notice directly, because the outbox cannot be written."""
        preview = self._network.preview
        try:
            await call_with_timeout(
                preview.platform.send(self.address, Content(text=STORE_UNREACHABLE), new_id()), preview.call
            )
        except PlatformError as error:
            log.warning("%s: couldn't post that a turn is waiting: %s", self.name, error)

    def _read_display(self, tx: Transaction) -> Display | None:
        return DISPLAY.get(tx, self.key)

    def _make_footer(self, tx: Transaction, ending: TurnResult) -> str:
        """Return the footer of a reply; empty if it is switched off."""
        if not self.display.footer or not isinstance(ending.end, TurnAnswered):
            return ""
        chat = self.active_session.chat
        steps = read_model_steps(tx, ending.turn_id)
        return format_footer(build_footer(steps, chat.model, chat.info, chat.workspace.folder))


class ReplyQueuer:
    """Turn listener that queues the result of each turn for delivery, and has it spoken while that is switched on.

    ``make_footer`` returns a line below the reply that is not part of the transcript.
    """

    resumable: ClassVar = False

    def __init__(
        self,
        make_footer: Callable[[Transaction, TurnResult], str],
        settings: LiveSettings,
        voice: VoiceReplies | None = None,
    ) -> None:
        self._make_footer = make_footer
        self._settings = settings
        self._voice = voice
        self.has_follow_up = self._may_speak()

    def _may_speak(self) -> bool:
        """Return whether replies may be spoken: by the setting, or because a chat can choose it with `/voice`."""
        voice = self._settings.current.voice
        return self._voice is not None and (voice.speak != "off" or bool(voice.speaker))

    def _set_has_follow_up(self, speaks: bool, then: AfterCommit | None) -> None:
        self.has_follow_up = speaks
        if then is not None:
            then()

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> AfterCommit | None:
        """Queue the result for the chat from which the message came, in the transaction that ends the turn."""
        if ending.route is not None and queue_turn_result(tx, ending, self._make_footer(tx, ending)) is None:
            _blank_preview(tx, ending)
        speaks = self._may_speak()
        then = self._voice.turn_ended(tx, ending) if self._voice is not None and speaks else None
        return then if speaks == self.has_follow_up else partial(self._set_has_follow_up, speaks, then)

    async def follow_up(self) -> bool:
        """Speak pending replies."""
        if self._voice is not None and self._may_speak():
            await self._voice.follow_up()
        return False


def _blank_preview(tx: Transaction, ending: TurnResult) -> None:
    """Queue a blank text for the preview of a turn without a reply, if one was posted."""
    posted = POSTED_MESSAGES.get(tx, ending.session_id, ending.turn_id)
    if posted is not None and ending.route is not None:
        queue_reply(tx, ending.session_id, ending.turn_id, ending.route, Content(text=BLANK_TEXT))


class ReplyFooter(Struct, frozen=True, kw_only=True):
    """Footer of a reply: model, context, folder and cost; unknown values are left out."""

    model: str = ""
    context: int = 0
    context_limit: int = 0
    folder: Path | None = None
    cost_microdollars: int = 0


def build_footer(steps: Sequence[ModelStep], model: str, info: ModelInfo, folder: Path) -> ReplyFooter:
    """Return the footer values of a turn; ``model`` is used if there were no model calls."""
    last = steps[-1] if steps else None
    return ReplyFooter(
        model=last.model if last else model,
        context=last.context if last else 0,
        context_limit=info.context_limit if last and last.context else 0,
        folder=folder,
        cost_microdollars=sum(step.usage.cost_microdollars or 0 for step in steps),
    )


def format_footer(runtime: ReplyFooter) -> str:
    """Return the footer as a Markdown line; empty if no value is known."""
    parts = [
        runtime.model,
        _format_context(runtime),
        _shorten_path(runtime.folder) if runtime.folder else "",
        format_money(runtime.cost_microdollars),
    ]
    return " · ".join(f"`{_UNSAFE.sub('', part)}`" for part in parts if part)


def _format_context(runtime: ReplyFooter) -> str:
    if not runtime.context_limit:
        return ""
    percent = round(100 * runtime.context / runtime.context_limit)
    limit = runtime.context_limit
    return f"{percent} % of {limit // 1000}k" if limit >= 1000 else f"{percent} % of {limit}"


def _shorten_path(folder: Path) -> str:
    home = Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)
