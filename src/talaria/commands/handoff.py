"""Slash commands `/handoff` (terminal) and `/move` (chat): hand the session over to another chat."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from talaria.commands.command import Command, CommandContext, TerminalSurface
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import REQUEST_LIFE, HandoffState, HandoffStatus
from talaria.core.errors import Refused, TalariaError
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId
from talaria.handoff.service import (
    HERE_NOW,
    POLL_SECONDS,
    HandoffRefused,
    HandoffRequest,
    RefusalCode,
    cancel_handoff,
    request_handoff,
    wait_for_handoff,
)
from talaria.sessions.chat_directory import address_label

_NOW = "--now"
_CANCEL = "cancel"
_TURN_MOVED_NOTICE = (
    "The rest of the answer appears there. This terminal closes when the turn ends. Press Ctrl-C to leave now; the "
    "gateway then asks the model again for the unfinished part."
)


class HandoffCommand:
    """Handoff request that waits for its end for up to ``patience``, and at least one ``pause``.

    ``pause`` is how often the store is read in case a notification is lost; ``remark`` how often progress is shown.
    """

    def __init__(
        self,
        *,
        patience: timedelta = REQUEST_LIFE,
        pause: timedelta = timedelta(seconds=POLL_SECONDS),
        remark: timedelta = timedelta(seconds=10),
    ) -> None:
        self._timeout_seconds = max(patience, pause).total_seconds()
        self._poll_seconds = pause.total_seconds()
        self._report_seconds = remark.total_seconds()

    @property
    def command(self) -> Command:
        """Command for the terminal."""
        return Command(
            name="handoff",
            category="Session",
            help="Move this conversation to a chat: telegram, discord, …",
            hint="[--now] <platform>[:chat] | cancel",
            where="terminal",
            instead_of=("move",),
            run=self.run,
            offers=offer_handoff_choices,
        )

    @property
    def chat_command(self) -> Command:
        """Command for chats."""
        return Command(
            name="move",
            category="Session",
            help="Move this conversation to another chat.",
            hint="[--now] <platform>[:chat] | cancel",
            where="chat",
            who="owner",
            instead_of=("handoff",),
            run=self.run,
            offers=offer_handoff_choices,
        )

    async def run(self, context: CommandContext) -> None:
        """Hand the session over and leave, or raise `Refused` with the reason why it stays here."""
        if context.arguments.strip().lower() == _CANCEL:
            await _cancel(context)
            return
        active_session, moved = context.active_session, context.active_session.session_id
        end = await self._request_and_wait(context, _parse_request(context.arguments, moved))
        if end["state"] != "completed":
            raise Refused(f"The conversation stays here: {end['error'] or 'the handoff failed'}.")
        if context.screen is not None:
            await _leave(context, context.screen, moved)
            return
        if not active_session.busy:  # otherwise the turn continues here and is shown there
            await active_session.reset_session(moved_session=moved)
        active_session.departure.end(None, stays=False)

    async def _request_and_wait(self, context: CommandContext, request: HandoffRequest) -> HandoffState:
        """Request the handoff and return its result; a cancelled wait withdraws the request.

        From before the request until its end no new turn starts here, so each message is answered in one chat.
        """
        active_session, end, running = context.active_session, None, context.active_session.busy
        active_session.departure.begin(active_session.chat.conversation, request.platform)
        try:
            await _request(context, request, is_busy=running)
            context.surface.show(f"Handing off to {platform_label(request.platform)} …")
            end = await wait_for_handoff(
                active_session.store,
                request.session_id,
                self._timeout_seconds,
                poll_seconds=min(self._poll_seconds, self._report_seconds),
                on_progress=self._make_reporter(context),
            )
        except asyncio.CancelledError:
            await asyncio.shield(cancel_handoff(active_session.store, request.session_id, "it was cancelled"))
            raise
        finally:
            if end is None or end["state"] != "completed":
                active_session.departure.end(
                    active_session.chat.conversation if active_session.is_open else None, stays=True
                )
        return end

    def _make_reporter(self, context: CommandContext) -> Callable[[HandoffState], None]:
        """Return a function that shows each new state, and periodically that nothing has changed."""
        clock = asyncio.get_running_loop().time
        started_at = reported_at = clock()
        last_status: HandoffStatus | None = "pending"

        def report(now: HandoffState) -> None:
            nonlocal reported_at, last_status
            if now["state"] != last_status:
                context.surface.show("The gateway is moving it …")
                last_status = now["state"]
            elif clock() - reported_at >= self._report_seconds:
                waited = clock() - started_at
                context.surface.show(f"Still waiting ({waited:.0f} of {self._timeout_seconds:.0f} s) …")
                reported_at = clock()

        return report


async def _cancel(context: CommandContext) -> None:
    active_session = context.active_session
    if not await cancel_handoff(active_session.store, active_session.session_id, "you cancelled it"):
        context.surface.show("There is no handoff to cancel.")
    elif active_session.departure.session_id is None:  # otherwise the waiting command reports it
        context.surface.show("Handoff cancelled. The conversation stays where it is.")


async def offer_handoff_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the configured networks as completions."""
    found = [(name, "configured") for name, configured in context.application.platforms.items() if configured]
    if context.arguments.startswith(_NOW):
        return [(f"{_NOW} {name}", about) for name, about in found]
    return [*found, (_NOW, "move now, in the middle of the turn"), (_CANCEL, "cancel the handoff")]


def _parse_request(arguments: str, session_id: SessionId) -> HandoffRequest:
    first, _, rest = arguments.partition(" ")
    is_immediate = first == _NOW
    return HandoffRequest(session_id, rest.strip() if is_immediate else arguments, immediate=is_immediate)


async def _request(context: CommandContext, request: HandoffRequest, *, is_busy: bool) -> None:
    """Request a handoff; a refusal names the command that helps."""
    platforms = context.application.platforms
    try:
        await request_handoff(context.active_session.store, request, platforms, is_busy=is_busy)
    except HandoffRefused as error:
        match error.code:
            case RefusalCode.UNKNOWN_PLATFORM if not request.platform:
                text = f"Where to? Use `/handoff <platform>` with one of {', '.join(platforms)}."
            case RefusalCode.UNKNOWN_PLATFORM:
                text = f"There is no platform `{request.platform}`. Available: {', '.join(platforms)}."
            case RefusalCode.NO_HOME_CHAT:
                label, sethome = platform_label(request.platform), platforms.format_command(request.platform, "sethome")
                text = f"{label} has no home chat yet. Send `{sethome}` in the chat you want to use."
            case RefusalCode.TURN_RUNNING:
                text = "A turn is running. Wait for it, stop it with `/stop`, or use `--now` to move it too."
            case _:
                raise
        raise HandoffRefused(error.code, text) from error


async def _leave(context: CommandContext, screen: TerminalSurface, moved: SessionId) -> None:
    """Show where the session is now, and exit once its running turn has ended."""
    active_session = context.active_session
    notice = await active_session.store.read(lambda tx: _describe_new_location(tx, moved))
    if active_session.session_id != moved:  # another session was opened here in the meantime
        active_session.departure.end(None, stays=False)
        context.surface.show(notice)
        return
    if active_session.busy:
        screen.mute()
        context.surface.show(f"{notice}\n\n{_TURN_MOVED_NOTICE}")
        with suppress(TalariaError):
            await active_session.chat.conversation.wait_until_idle()
    else:
        context.surface.show(notice)
    screen.leave()


def _describe_new_location(tx: Transaction, session_id: SessionId) -> str:
    """Return where a session is now and how to resume it, from a shell and from a chat."""
    state = tx.handoffs.get_handoff_state(session_id)
    where = platform_label((state["platform"] if state else None) or "another chat")
    for binding in tx.bindings.of_session(session_id)[:1]:
        where = address_label(tx, binding.address)
    return HERE_NOW.format(where=where, session_id=session_id)


HANDOFF, MOVE = HandoffCommand().command, HandoffCommand().chat_command
