"""Preview of a reply while its turn runs: best effort, never delays or fails the turn."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field, structs

from talaria.commands.command import Display
from talaria.contracts.platform import Content, MessageRef, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.core.addresses import ReplyRoute
from talaria.core.errors import PlatformError, SlowDown, StoreError, Unreachable
from talaria.core.events import TurnAnswered, TurnEvent, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.gateway.outbound.message_writer import (
    BLANK_TEXT,
    POSTED_MESSAGES,
    PREVIEW,
    TYPING,
    PostedMessages,
    Throttle,
    call_with_timeout,
)
from talaria.gateway.outbound.preview_text import PreviewText
from talaria.gateway.outbound.text_parts import GrowingText
from talaria.runtime.turns import find_redirect
from talaria.settings.model import LiveSettings, Settings

_RETRY = 0.1  # seconds until an urgent update is tried again
_MAX_DELAY = 0.9  # seconds; shorter than a lease, unless the settings make that very short

log = logging.getLogger(__name__)


class PreviewOptions(Struct, frozen=True, kw_only=True):
    """Options shared by the previews of one network; times are in seconds.

    A reply is shown once it has ``min_characters`` characters or its turn has run for ``patience``. ``call`` is the
    limit for one call to the network; a slower call is awaited when the preview ends, for at most ``final_wait``, which
    is less than final texts wait for the preview. ``typing`` is the interval of typing notices. If messages cannot be
    edited or streaming is off, tool calls are posted at most every ``tool_lines_interval``, and the text is posted
    when it is final. ``settings`` say how many characters of a reply are shown.
    """

    store: Store
    platform: Platform
    throttle: Throttle
    worker: WorkerId
    min_characters: int = 40
    patience: float = 1.0
    call: float = 5.0
    final_wait: float = 16.0
    settings: LiveSettings = field(default_factory=lambda: LiveSettings(Settings()))
    typing: float = 4.0
    tool_lines_interval: float = 5.0


class Preview:
    """Preview of one turn. `handle_event` records an event without blocking; `serve` shows the turn until it ends.

    Messages are recorded in the store before they are posted, so that any worker can put the final text into them. A
    turn that ``is_new`` has no preview of an earlier worker.
    """

    def __init__(
        self,
        options: PreviewOptions,
        session_id: SessionId,
        turn_id: TurnId,
        route: ReplyRoute,
        display: Display,
        *,
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self._options = options
        self._platform = options.platform
        self._session_id = session_id
        self._turn_id = turn_id
        self._route = route
        self._display = display
        gateway = options.settings.current.gateway
        self._text = PreviewText(display, gateway.reply_characters, gateway.diff_lines)
        self._posted = PostedMessages(route.address)
        self._texts: list[str] = []
        self._splitter: GrowingText | None = None
        self._pending: asyncio.Future[MessageRef | None] | None = None
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._ended = False
        self._broken = False
        self._posted_calls = 0
        self._shown_version = 0
        self._not_before = 0.0
        self._retry_at = 0.0

    def handle_event(self, event: TurnEvent) -> None:
        """Record an event of the turn."""
        self._text.handle_event(event)
        if self._text.passages:
            self._flushed.clear()
        if isinstance(event, TurnAnswered | TurnStopped | TurnFailed | TurnOutOfBudget):
            self._ended = True
        self._changed.set()

    def set_display(self, display: Display) -> None:
        """Change what is shown from now on."""
        self._display = display
        self._text.set_display(display)

    def end(self) -> None:
        """Stop the preview, because the turn is over or is shown elsewhere."""
        self._ended = True
        self._changed.set()

    async def wait_until_flushed(self) -> None:
        """Wait until the text before a question is shown, at most ``call`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.call):
                await self._flushed.wait()

    async def serve(self) -> None:
        """Show the turn until it ends."""
        typing = asyncio.ensure_future(self._show_typing())
        try:
            await self._show()
        except Exception:  # a failed preview must not fail the turn
            log.exception("%s: a preview failed", self._platform.name)
        finally:
            typing.cancel()
            self._flushed.set()
            await asyncio.shield(self._finish())
        await self._blank_late_post()

    async def _show(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._options.patience
        try:
            if not self._is_new:
                await self._resume()
        except StoreError as error:
            log.warning("%s: can't show a preview: %s", self._platform.name, error)
            return
        while not self._ended:
            self._changed.clear()
            if self._broken or not self._text.passages:
                self._flushed.set()
            seconds = self._compute_seconds_left()
            if seconds == 0:
                await self._advance()
            else:
                await self._wait_for_change(seconds)

    async def _resume(self) -> None:
        """Resume the preview that an earlier worker has started for this turn."""
        found = await self._options.store.read(lambda tx: POSTED_MESSAGES.get(tx, self._session_id, self._turn_id))
        if found is None:
            return
        if found.address != self._route.address:  # shown in the chat where the session was before
            self._posted = found.for_address(self._route.address)
            return
        known = tuple(message_id for message_id in found.messages if message_id)
        doubtful = len(found.messages) - len(known)
        # A message without an id cannot be edited, so a new one is posted, unless the network is idempotent and returns
        # the old one for its key.
        again = self._platform.abilities.idempotent
        final_count, maybe = (found.final_count, doubtful) if again else (found.final_count + doubtful, 0)
        self._posted = structs.replace(
            found, messages=known, final_count=final_count, live=self._options.worker, maybe=max(found.maybe, maybe)
        )
        self._texts = [""] * len(known)
        if not await self._options.store.write(self._record_post):
            self._broken = True

    async def _wait_for_change(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _compute_seconds_left(self) -> float | None:
        """Return the seconds until the next update; ``None`` if there is nothing new."""
        if self._broken or not (self._text.passages or self._text.version != self._shown_version):
            return None
        delay = self._options.throttle.delay(self._route.address, PREVIEW)
        now = asyncio.get_running_loop().time()
        if self._edits and self._is_urgent():
            return max(self._retry_at - now, delay, 0.0)
        return max(self._not_before - now, delay, 0.0)

    def _is_urgent(self) -> bool:
        """Return whether to update at once: before a question, or with enough text for the first message."""
        if any(passage.stays for passage in self._text.passages):
            return True
        return not self._posted.messages and len(self._text.text) >= self._options.min_characters

    @property
    def _edits(self) -> bool:
        return self._display.streaming and self._platform.abilities.edits

    async def _advance(self) -> None:
        """Show what is new, and set the time of the next update."""
        pause = self._platform.abilities.edit_pace.total_seconds()
        try:
            await (self._update_messages() if self._edits else self._post_calls())
        except SlowDown as error:
            pause = max(pause, error.retry_after.total_seconds())
            self._options.throttle.slow_down(self._route.address, error)
        except (Unreachable, StoreError) as error:
            pause = max(pause, self._options.call)
            log.info("%s: a preview waits: %s", self._platform.name, error)
        except PlatformError as error:
            self._broken = True
            log.info("%s: a preview ends: %s", self._platform.name, error)
        now = asyncio.get_running_loop().time()
        self._not_before = now + (pause if self._edits else self._options.tool_lines_interval)
        self._retry_at = now + _RETRY

    async def _post_calls(self) -> None:
        """Post the lines of tool calls as separate messages."""
        self._shown_version = self._text.version
        self._text.passages.clear()
        lines = self._text.take_new_lines()
        if lines and self._platform.abilities.progress:
            self._posted_calls += 1
            key = f"{self._turn_id}:calls:{self._posted_calls}"
            await call_with_timeout(
                self._platform.send(self._route.address, Content(text=lines), key), self._options.call
            )

    async def _update_messages(self) -> None:
        while self._text.passages and not self._ended:
            passage = self._text.passages[0]
            if passage.stays or len(self._split(passage.text)) > 1:
                if not await self._show_text(passage.text):
                    return
                await self._start_new_message()
                self._text.mark_posted(passage)
            self._text.passages.popleft()
        version, text = self._text.version, self._text.text
        if not text or await self._show_text(text):
            self._shown_version = version

    def _split(self, text: str) -> Sequence[str]:
        """Return the pieces of a text that continues the one before."""
        if self._splitter is None:
            self._splitter = GrowingText(self._platform.abilities.text_limit, self._platform.abilities.text_unit)
        return self._splitter.split_text(text)

    async def _show_text(self, text: str) -> bool:
        """Update the messages to show this text; ``False`` if that has to wait."""
        for position, piece in enumerate(self._split(text)):
            if self._ended or self._is_calling():
                return False
            if position >= len(self._posted.messages):
                if not await self._post(position, piece):
                    return False
            elif self._texts[position] != piece:
                ref = MessageRef(self._route.address, self._posted.messages[position])
                asked_at = asyncio.get_running_loop().time()
                if not await self._options.store.read(self._is_owned) or self._is_late(asked_at):
                    self._broken = True  # another worker has taken over the turn, and may have posted the final text
                    return False
                if not self._options.throttle.take(self._route.address, PREVIEW):
                    return False
                await self._call(self._edit(ref, piece))
                self._texts[position] = piece
        return True

    async def _post(self, position: int, piece: str) -> bool:
        if not self._options.throttle.take(self._route.address, PREVIEW):
            return False
        before = structs.replace(self._posted, live=self._options.worker)
        self._posted = structs.replace(before, messages=(*before.messages, ""))
        asked_at = asyncio.get_running_loop().time()
        is_recorded = False
        try:
            is_recorded = await self._options.store.write(self._record_post) and not self._is_late(asked_at)
        finally:
            self._posted = self._posted if is_recorded else before
        if not is_recorded:
            return False
        content = Content(text=piece, reply_to="" if position or before.final_count else self._route.reply_to)
        try:
            ref = await self._call(
                self._platform.send(self._route.address, content, before.key(self._turn_id, position))
            )
        except Unreachable:
            self._broken = True  # it may have been posted: the delivery of the final text handles both cases
            raise
        except PlatformError:
            self._posted = before
            await self._write_posted()
            raise
        self._posted = structs.replace(before, messages=(*before.messages, ref.message_id if ref else ""))
        self._texts.append(piece)
        await self._write_posted()
        return True

    async def _edit(self, ref: MessageRef, text: str) -> None:
        await self._platform.edit(ref, Content(text=text))

    def _is_calling(self) -> bool:
        """Return whether a slow call is still running; no other call may overtake it."""
        return self._pending is not None and not self._pending.done()

    async def _call(self, call: Coroutine[Any, Any, MessageRef | None]) -> MessageRef | None:
        """Return the result of a network call; raises `Unreachable` if it is slow, but lets it continue."""
        self._pending = call_under_way = asyncio.ensure_future(call)
        call_under_way.add_done_callback(_consume_error)
        done, _ = await asyncio.wait({call_under_way}, timeout=self._options.call)
        if not done:
            raise Unreachable(f"no answer within {self._options.call:g} s")
        return call_under_way.result()

    def _record_post(self, tx: Transaction) -> bool:
        """Record that a message is about to be posted; ``False`` if the turn is over or earlier replies are pending."""
        if not self._is_running(tx) or not self._is_current(tx):
            return False
        earlier = [
            item
            for item in tx.outbox.find(OutboxFilter(session_id=self._session_id))
            if item.state != "failed" and item.address == self._route.address
        ]
        if earlier:
            return False
        POSTED_MESSAGES.write(tx, self._session_id, self._posted, self._turn_id)
        return True

    def _is_running(self, tx: Transaction) -> bool:
        return any(turn.id == self._turn_id for turn in tx.turns.find(self._session_id, running=True))

    def _is_current(self, tx: Transaction) -> bool:
        """Return whether the reply is still for this chat; its session may have moved."""
        moved = find_redirect(tx, self._session_id, self._turn_id)
        return moved is None or moved.route == self._route

    def _is_late(self, asked_at: float) -> bool:
        """Return whether this process was delayed so long that another may have taken over the turn."""
        self._broken = self._broken or asyncio.get_running_loop().time() - asked_at > _MAX_DELAY
        return self._broken

    def _is_owned(self, tx: Transaction) -> bool:
        found = POSTED_MESSAGES.get(tx, self._session_id, self._turn_id)
        ours = found is not None and found.live == self._options.worker and found.address == self._route.address
        return ours and self._is_current(tx)

    async def _start_new_message(self) -> None:
        """Leave the current messages as they are, so that the following text is posted below them."""
        final_count = self._posted.final_count + len(self._posted.messages)
        self._posted = structs.replace(self._posted, messages=(), final_count=final_count)
        self._texts.clear()
        self._splitter = None
        await self._write_posted()

    async def _write_posted(self) -> None:
        posted = self._posted

        def work(tx: Transaction) -> None:
            # A missing or foreign record belongs to a reply that is being delivered without waiting for this preview.
            if self._is_owned(tx):
                POSTED_MESSAGES.write(tx, self._session_id, posted, self._turn_id)

        await self._options.store.write(work)

    async def _finish(self) -> None:
        """Release the messages for the final text."""
        self._ended = True
        if not self._posted.live:
            return
        if self._pending is not None:
            await asyncio.wait({self._pending}, timeout=self._options.final_wait)
            self._note_late_post()
        self._posted = structs.replace(self._posted, live=WorkerId(""))
        try:
            await self._write_posted()
        except StoreError as error:
            log.warning("%s: couldn't record the end of a preview: %s", self._platform.name, error)

    def _note_late_post(self) -> None:
        """Record the id of a message that was posted after the timeout, so that it gets the final text."""
        ref = self._find_late_post()
        if ref is not None and self._posted.messages and not self._posted.messages[-1]:
            self._posted = structs.replace(self._posted, messages=(*self._posted.messages[:-1], ref.message_id))

    def _find_late_post(self) -> MessageRef | None:
        """Return the message of the last call, if that posted one."""
        if self._pending is None or not self._pending.done() or self._pending.cancelled() or self._pending.exception():
            return None
        return self._pending.result()

    async def _blank_late_post(self) -> None:
        """Blank a message posted so late that the final text may be in another one."""
        if not self._is_calling() or self._pending is None or self._platform.abilities.idempotent:
            return
        await asyncio.wait({self._pending}, timeout=self._options.final_wait)
        ref = self._find_late_post()
        if ref is not None:
            with suppress(PlatformError):
                await call_with_timeout(self._platform.edit(ref, Content(text=BLANK_TEXT)), self._options.call)

    async def _show_typing(self) -> None:
        while self._platform.abilities.typing:
            try:
                if self._options.throttle.take(self._route.address, TYPING):
                    await call_with_timeout(self._platform.show_typing(self._route.address), self._options.call)
            except SlowDown as error:
                self._options.throttle.slow_down(self._route.address, error)
            except PlatformError as error:
                log.debug("%s: couldn't show the typing indicator: %s", self._platform.name, error)
            except Exception:  # a failed typing notice must not fail the preview
                log.exception("%s: couldn't show the typing indicator", self._platform.name)
                return
            await asyncio.sleep(self._options.typing)


def _consume_error(call: "asyncio.Future[MessageRef | None]") -> None:
    """Retrieve the error of a call that may no longer be awaited, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
