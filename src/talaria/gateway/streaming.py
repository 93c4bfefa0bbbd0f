"""A reply that grows in place while its turn runs; best effort: nothing of it holds up the turn or fails it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from talaria.commands.command import Display
from talaria.contracts.platform import Content, MessageRef, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.outbox import OutboxFilter
from talaria.core.addresses import Route
from talaria.core.errors import PlatformError, SlowDown, StoreError, Unreachable
from talaria.core.events import TurnAnswered, TurnEvent, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.gateway.draft import Draft
from talaria.gateway.long_reply import REPLY_LIMIT
from talaria.gateway.placing import REMAINDER, bounded
from talaria.gateway.shown import Shown, keep_shown, read_shown
from talaria.gateway.splitting import GrowingText
from talaria.gateway.throttle import PREVIEW, TYPING, Throttle
from talaria.sessions.company import accompanied
from talaria.sessions.rerouting import rerouted

_RETRY = 0.1  # seconds after which something urgent is tried again
_HELD_UP = 0.9  # seconds; a lease lasts longer, unless the settings make it very short

log = logging.getLogger(__name__)


class Stage(Struct, frozen=True, kw_only=True):
    """What the previews of one network share.

    A reply is shown when it has ``enough`` characters or its turn has run for ``patience`` seconds. ``call`` is how
    long a preview waits for one call to the network before it goes on without; one that takes longer is waited for
    when the preview ends, for ``parting`` seconds at most: less than final texts wait for that. ``typing`` is how often
    people are shown that somebody writes. Where nothing can be edited, or that is not wanted, tool calls are told
    every ``telling`` seconds at most, and the text comes when it is final. ``reply_limit`` is how many characters of a
    reply are shown.
    """

    store: Store
    platform: Platform
    throttle: Throttle
    worker: WorkerId
    enough: int = 40
    patience: float = 1.0
    call: float = 5.0
    parting: float = 16.0
    reply_limit: Callable[[], int] = lambda: REPLY_LIMIT
    typing: float = 4.0
    telling: float = 5.0


class Preview:
    """Shows one turn. `event` takes note of what happens and never waits; `serve` shows it until the turn ends.

    The messages that it posts are recorded before they are changed: the final text is put into them, by whichever
    worker delivers it.
    """

    def __init__(
        self, stage: Stage, session_id: SessionId, turn_id: TurnId, route: Route, display: Callable[[], Display]
    ) -> None:
        self._stage = stage
        self._platform = stage.platform
        self._session_id = session_id
        self._turn_id = turn_id
        self._route = route
        self._display = display
        self._draft = Draft(display, stage.reply_limit())
        self._shown = Shown(route.address)
        self._texts: list[str] = []
        self._growing = self._new_growing()
        self._pending: asyncio.Future[MessageRef | None] | None = None
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._ended = False
        self._broken = False
        self._told = 0
        self._seen = 0
        self._not_before = 0.0
        self._retry_at = 0.0

    def event(self, event: TurnEvent) -> None:
        """Take note of what happens."""
        self._draft.event(event)
        if self._draft.passages:
            self._flushed.clear()
        if isinstance(event, TurnAnswered | TurnStopped | TurnFailed | TurnOutOfBudget):
            self._ended = True
        self._changed.set()

    def end(self) -> None:
        """Show nothing more: the turn is over, however it ended."""
        self._ended = True
        self._changed.set()

    async def flushed(self) -> None:
        """Wait until people see what was said before a question, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stage.call):
                await self._flushed.wait()

    async def serve(self) -> None:
        """Show the turn until it ends."""
        try:
            await accompanied(self._show(), self._show_typing())
        except Exception:  # what is shown on the way is not worth a turn
            log.exception("%s: a preview failed", self._platform.name)
        finally:
            self._flushed.set()
            await asyncio.shield(self._leave())
        await self._blank_late_post()

    async def _show(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._stage.patience
        try:
            await self._take_up()
        except StoreError as error:
            log.warning("%s: there is no preview: %s", self._platform.name, error)
            return
        while not self._ended:
            self._changed.clear()
            if self._broken or not self._draft.passages:
                self._flushed.set()
            seconds = self._seconds_left()
            if seconds == 0:
                await self._advance()
            else:
                await self._change(seconds)

    async def _take_up(self) -> None:
        """Go on with what an earlier worker has shown of this turn."""
        found = await self._stage.store.read(lambda tx: read_shown(tx, self._turn_id))
        if found is None:
            return
        if found.address != self._route.address:  # it was shown where its conversation was before
            self._shown = found.at_address(self._route.address)
            return
        known = tuple(message_id for message_id in found.messages if message_id)
        doubtful = len(found.messages) - len(known)
        # One that may have been posted and has no id cannot be changed: the next is another message, unless the
        # network answers with that one when its key comes again.
        again = self._platform.abilities.idempotent
        let_go, maybe = (found.let_go, doubtful) if again else (found.let_go + doubtful, 0)
        self._shown = structs.replace(
            found, messages=known, let_go=let_go, live=self._stage.worker, maybe=max(found.maybe, maybe)
        )
        self._texts = [""] * len(known)
        if not await self._stage.store.write(self._begin):
            self._broken = True

    async def _change(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _seconds_left(self) -> float | None:
        """Return how long to wait before something is shown; ``None`` as long as nothing new happens."""
        if self._broken or not (self._draft.passages or self._draft.version != self._seen):
            return None
        delay = self._stage.throttle.delay(self._route.address, PREVIEW)
        now = asyncio.get_running_loop().time()
        if self._edits and self._is_urgent():
            return max(self._retry_at - now, delay, 0.0)
        return max(self._not_before - now, delay, 0.0)

    def _is_urgent(self) -> bool:
        """Tell whether not to wait: somebody is about to be asked something, or there is enough to begin with."""
        if any(passage.stays for passage in self._draft.passages):
            return True
        return not self._shown.messages and len(self._draft.text) >= self._stage.enough

    @property
    def _edits(self) -> bool:
        return self._display().streaming and self._platform.abilities.edits

    async def _advance(self) -> None:
        """Show what is new, and note when to show more."""
        pause = self._platform.abilities.edit_pace.total_seconds()
        try:
            await (self._grow() if self._edits else self._tell())
        except SlowDown as error:
            pause = max(pause, error.retry_after.total_seconds())
            self._stage.throttle.slow_down(self._route.address, error)
        except (Unreachable, StoreError) as error:
            pause = max(pause, self._stage.call)
            log.info("%s: a preview waits: %s", self._platform.name, error)
        except PlatformError as error:
            self._broken = True
            log.info("%s: a preview ends: %s", self._platform.name, error)
        now = asyncio.get_running_loop().time()
        self._not_before = now + (pause if self._edits else self._stage.telling)
        self._retry_at = now + _RETRY

    async def _tell(self) -> None:
        """Post the lines of tool calls as messages of their own."""
        self._seen = self._draft.version
        self._draft.passages.clear()
        lines = self._draft.new_lines()
        if lines:
            self._told += 1
            key = f"{self._turn_id}:calls:{self._told}"
            await bounded(self._platform.send(self._route.address, Content(text=lines), key), self._stage.call)

    async def _grow(self) -> None:
        while self._draft.passages and not self._ended:
            passage = self._draft.passages[0]
            if passage.stays or len(self._growing.pieces(passage.text)) > 1:
                if not await self._put(passage.text):
                    return
                await self._let_go()
                self._draft.was_said(passage)
            self._draft.passages.popleft()
        version, text = self._draft.version, self._draft.text
        if not text or await self._put(text):
            self._seen = version

    def _new_growing(self) -> GrowingText:
        return GrowingText(self._platform.abilities.text_limit, self._platform.abilities.text_unit)

    async def _put(self, text: str) -> bool:
        """Make the messages say this, as far as they do not; ``False`` if that has to wait."""
        for place, piece in enumerate(self._growing.pieces(text)):
            if self._ended or self._is_calling():
                return False
            if place >= len(self._shown.messages):
                if not await self._post(place, piece):
                    return False
            elif self._texts[place] != piece:
                ref = MessageRef(self._route.address, self._shown.messages[place])
                asked = asyncio.get_running_loop().time()
                if not await self._stage.store.read(self._is_ours) or self._is_late(asked):
                    self._broken = True  # another worker has taken the turn over, and may have said the last word
                    return False
                if not self._stage.throttle.take(self._route.address, PREVIEW):
                    return False
                await self._called(self._edited(ref, piece))
                self._texts[place] = piece
        return True

    async def _post(self, place: int, piece: str) -> bool:
        if not self._stage.throttle.take(self._route.address, PREVIEW):
            return False
        before = structs.replace(self._shown, live=self._stage.worker)
        self._shown = structs.replace(before, messages=(*before.messages, ""))
        asked = asyncio.get_running_loop().time()
        begun = False
        try:
            begun = await self._stage.store.write(self._begin) and not self._is_late(asked)
        finally:
            self._shown = self._shown if begun else before
        if not begun:
            return False
        content = Content(text=piece, reply_to="" if place or before.let_go else self._route.reply_to)
        try:
            ref = await self._called(
                self._platform.send(self._route.address, content, before.key(self._turn_id, place))
            )
        except Unreachable:
            self._broken = True  # it may be there: whoever delivers the final text sees to that
            raise
        except PlatformError:
            self._shown = before
            await self._keep()
            raise
        self._shown = structs.replace(before, messages=(*before.messages, ref.message_id if ref else ""))
        self._texts.append(piece)
        await self._keep()
        return True

    async def _edited(self, ref: MessageRef, text: str) -> None:
        await self._platform.edit(ref, Content(text=text))

    def _is_calling(self) -> bool:
        """Tell whether a call is still under way that took too long; nothing may overtake it."""
        return self._pending is not None and not self._pending.done()

    async def _called(self, call: Coroutine[Any, Any, MessageRef | None]) -> MessageRef | None:
        """Return what a call to the network returns; one that takes long goes on, and is waited for in the end."""
        self._pending = call_under_way = asyncio.ensure_future(call)
        call_under_way.add_done_callback(_retrieve)
        done, _ = await asyncio.wait({call_under_way}, timeout=self._stage.call)
        if not done:
            raise Unreachable(f"there was no answer within {self._stage.call:g} s")
        return call_under_way.result()

    def _begin(self, tx: Transaction) -> bool:
        """Record that a message is about to be posted; not for a turn that is over, nor ahead of earlier replies."""
        if not self._is_running(tx) or not self._is_here(tx):
            return False
        earlier = [
            item
            for item in tx.outbox.find(OutboxFilter(session_id=self._session_id))
            if item.state != "failed" and item.address == self._route.address
        ]
        if earlier:
            return False
        keep_shown(tx, self._turn_id, self._shown)
        return True

    def _is_running(self, tx: Transaction) -> bool:
        return any(turn.id == self._turn_id for turn in tx.turns.find(self._session_id, running=True))

    def _is_here(self, tx: Transaction) -> bool:
        """Tell whether the reply still goes here: its conversation may have moved meanwhile."""
        moved = rerouted(tx, self._session_id, self._turn_id)
        return moved is None or moved.route == self._route

    def _is_late(self, asked: float) -> bool:
        """Tell whether this process was held up meanwhile, so that another may have taken the turn over."""
        self._broken = self._broken or asyncio.get_running_loop().time() - asked > _HELD_UP
        return self._broken

    def _is_ours(self, tx: Transaction) -> bool:
        found = read_shown(tx, self._turn_id)
        ours = found is not None and found.live == self._stage.worker and found.address == self._route.address
        return ours and self._is_here(tx)

    async def _let_go(self) -> None:
        """Leave the messages as they are: what comes is another message, below them."""
        let_go = self._shown.let_go + len(self._shown.messages)
        self._shown = structs.replace(self._shown, messages=(), let_go=let_go)
        self._texts.clear()
        self._growing = self._new_growing()
        await self._keep()

    async def _keep(self) -> None:
        shown = self._shown

        def work(tx: Transaction) -> None:
            # One that is gone, or not ours, belongs to a reply that is being delivered without waiting for us.
            if self._is_ours(tx):
                keep_shown(tx, self._turn_id, shown)

        await self._stage.store.write(work)

    async def _leave(self) -> None:
        """Let the final text be put into the messages."""
        self._ended = True
        if not self._shown.live:
            return
        if self._pending is not None:
            await asyncio.wait({self._pending}, timeout=self._stage.parting)
            self._note_late_post()
        self._shown = structs.replace(self._shown, live=WorkerId(""))
        try:
            await self._keep()
        except StoreError as error:
            log.warning("%s: the end of a preview was not recorded: %s", self._platform.name, error)

    def _note_late_post(self) -> None:
        """Take the id of a message that was posted later than we waited for: the final text is put into it."""
        ref = self._late_post()
        if ref is not None and self._shown.messages and not self._shown.messages[-1]:
            self._shown = structs.replace(self._shown, messages=(*self._shown.messages[:-1], ref.message_id))

    def _late_post(self) -> MessageRef | None:
        """Return the message of the last call, if that posted one."""
        if self._pending is None or not self._pending.done() or self._pending.cancelled() or self._pending.exception():
            return None
        return self._pending.result()

    async def _blank_late_post(self) -> None:
        """Blank a message that was posted so late that the final text may stand in another one."""
        if not self._is_calling() or self._pending is None or self._platform.abilities.idempotent:
            return
        await asyncio.wait({self._pending}, timeout=self._stage.parting)
        ref = self._late_post()
        if ref is not None:
            with suppress(PlatformError):
                await bounded(self._platform.edit(ref, Content(text=REMAINDER)), self._stage.call)

    async def _show_typing(self) -> None:
        while self._platform.abilities.typing:
            try:
                if self._stage.throttle.take(self._route.address, TYPING):
                    await bounded(self._platform.show_typing(self._route.address), self._stage.call)
            except SlowDown as error:
                self._stage.throttle.slow_down(self._route.address, error)
            except PlatformError as error:
                log.debug("%s: typing was not shown: %s", self._platform.name, error)
            except Exception:  # nor is it worth the preview
                log.exception("%s: typing was not shown", self._platform.name)
                return
            await asyncio.sleep(self._stage.typing)


def _retrieve(call: "asyncio.Future[MessageRef | None]") -> None:
    """Look at the error of a call that nobody may wait for any more."""
    if not call.cancelled():
        call.exception()
