"""A reply that grows in place while its turn runs; best effort: nothing of it holds up the turn or fails it."""

import asyncio
import logging
from collections.abc import Callable

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
from talaria.gateway.pacing import Gate
from talaria.gateway.placing import bounded
from talaria.gateway.shown import Shown, keep_shown, read_shown
from talaria.gateway.splitting import split_text
from talaria.sessions.company import accompanied
from talaria.sessions.rerouting import rerouted

_HELD_UP = 0.9  # seconds; a lease lasts longer, unless the settings make it very short

log = logging.getLogger(__name__)


class Stage(Struct, frozen=True, kw_only=True):
    """What the previews of one network share.

    A reply is shown when it has ``enough`` characters or its turn has run for ``patience`` seconds. ``call`` is the
    time that one call to the network has: less than final texts wait for a preview to end. ``typing`` is how often
    people are shown that somebody writes. Where nothing can be edited, or that is not wanted, tool calls are told
    every ``telling`` seconds at most, and the words come when they are final.
    """

    store: Store
    platform: Platform
    gate: Gate
    worker: WorkerId
    enough: int = 40
    patience: float = 1.0
    call: float = 5.0
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
        self._draft = Draft(display)
        self._shown = Shown(route.address)
        self._texts: list[str] = []
        self._changed = asyncio.Event()
        self._ended = False
        self._broken = False
        self._told = 0
        self._seen = ""
        self._not_before = 0.0

    def event(self, event: TurnEvent) -> None:
        """Take note of what happens."""
        self._draft.event(event)
        if isinstance(event, TurnAnswered | TurnStopped | TurnFailed | TurnOutOfBudget):
            self._ended = True
        self._changed.set()

    def end(self) -> None:
        """Show nothing more: the turn is over, however it ended."""
        self._ended = True
        self._changed.set()

    async def serve(self) -> None:
        """Show the turn until it ends."""
        try:
            await accompanied(self._show(), self._show_typing())
        except Exception:  # what is shown on the way is not worth a turn
            log.exception("%s: a preview failed", self._platform.name)
        finally:
            await asyncio.shield(self._leave())

    async def _show(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._stage.patience
        try:
            await self._take_up()
        except StoreError as error:
            log.warning("%s: there is no preview: %s", self._platform.name, error)
            return
        while not self._ended:
            self._changed.clear()
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
        if self._broken or not (self._draft.passages or self._draft.text != self._seen):
            return None
        if self._edits and not self._shown.messages and len(self._draft.text) >= self._stage.enough:
            return self._stage.gate.shut_for
        now = asyncio.get_running_loop().time()
        return max(self._not_before - now, self._stage.gate.shut_for, 0.0)

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
            if error.everywhere:
                self._stage.gate.shut(error.retry_after)
        except (Unreachable, StoreError) as error:
            pause = max(pause, self._stage.call)
            log.info("%s: a preview waits: %s", self._platform.name, error)
        except PlatformError as error:
            self._broken = True
            log.info("%s: a preview ends: %s", self._platform.name, error)
        self._not_before = asyncio.get_running_loop().time() + (pause if self._edits else self._stage.telling)

    async def _tell(self) -> None:
        """Post the lines of tool calls as messages of their own."""
        self._seen = self._draft.text
        self._draft.passages.clear()
        lines = self._draft.new_lines()
        if lines:
            self._told += 1
            key = f"{self._turn_id}:calls:{self._told}"
            await self._bounded_send(Content(text=lines), key)

    async def _grow(self) -> None:
        while self._draft.passages and not self._ended:
            passage = self._draft.passages[0]
            if passage.stays or len(self._split(passage.text)) > 1:
                if not await self._put(passage.text):
                    return
                await self._let_go()
                self._draft.was_said(passage)
            self._draft.passages.popleft()
        text = self._draft.text
        if not text or await self._put(text):
            self._seen = text

    def _split(self, text: str) -> list[str]:
        return split_text(text, self._platform.abilities.text_limit, self._platform.abilities.text_unit)

    async def _put(self, text: str) -> bool:
        """Make the messages say this, as far as they do not; ``False`` if that has to wait."""
        for place, piece in enumerate(self._split(text)):
            if self._ended:
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
                await bounded(self._platform.edit(ref, Content(text=piece)), self._stage.call)
                self._texts[place] = piece
        return True

    async def _post(self, place: int, piece: str) -> bool:
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
        reply_to = "" if place or before.let_go else self._route.reply_to
        try:
            ref = await self._bounded_send(Content(text=piece, reply_to=reply_to), before.key(self._turn_id, place))
        except Unreachable:
            self._broken = True  # it may be there: whoever delivers the final text sees to that
            raise
        except PlatformError:
            self._shown = before
            await self._keep()
            raise
        self._shown = structs.replace(before, messages=(*before.messages, ref.message_id))
        self._texts.append(piece)
        await self._keep()
        return True

    async def _bounded_send(self, content: Content, key: str) -> MessageRef:
        return await bounded(self._platform.send(self._route.address, content, key), self._stage.call)

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
        self._shown = structs.replace(self._shown, live=WorkerId(""))
        try:
            await self._keep()
        except StoreError as error:
            log.warning("%s: the end of a preview was not recorded: %s", self._platform.name, error)

    async def _show_typing(self) -> None:
        while self._platform.abilities.typing:
            try:
                if not self._stage.gate.shut_for:
                    await bounded(self._platform.show_typing(self._route.address), self._stage.call)
            except SlowDown as error:
                self._stage.gate.shut(error.retry_after)
            except PlatformError as error:
                log.debug("%s: typing was not shown: %s", self._platform.name, error)
            except Exception:  # nor is it worth the preview
                log.exception("%s: typing was not shown", self._platform.name)
                return
            await asyncio.sleep(self._stage.typing)
