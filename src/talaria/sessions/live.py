"""Tell those who watch from elsewhere what happens in the turns of this process, and hear what they say to them.

A turn that nobody watches is only looked after: one task for all turns of the process asks the store now and then.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, assert_never

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.events import ApprovalAsked, QuestionAsked, ToolProgressed, TurnBegan, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.sessions.chat import Chat
from talaria.sessions.live_events import NEWS, SO_FAR, Digest, QuestionClosed, Seen, Telling, encode_telling
from talaria.sessions.live_words import (
    LIVE,
    Answer,
    Moved,
    Nudge,
    Spoken,
    Stop,
    forget_lapsed,
    spoken_to,
    stream_of,
    take_words,
    watchers,
)

_GATHERING = 0.08
_LAST_WORDS = 1.0

log = logging.getLogger(__name__)


class LiveFeeds:
    """The turns of one process that are being worked on, and who looks after those that watch them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._runs: dict[_Run, Feed] = {}
        self._leader: _Run | None = None
        self._rung: asyncio.Event | None = None

    def begin(self, run: "_Run", feed: "Feed") -> None:
        """Look after a turn."""
        self._runs[run] = feed
        if self._leader is None:
            self._lead()
        elif self._rung is not None:
            self._rung.set()

    def end(self, run: "_Run") -> None:
        """Look after it no more; somebody else looks after the others."""
        self._runs.pop(run, None)
        if self._leader is run:
            self._leader = None
            if self._rung is not None:
                self._rung.set()
            self._lead()

    def end_all(self, feed: "Feed") -> None:
        """Look after nothing more of a conversation that is closed."""
        for run in [run for run, of in self._runs.items() if of is feed]:
            self.end(run)

    async def look(self) -> None:
        """See who watches the turns that are running, or were until now, and act on what was said to them."""
        looked = tuple(self._runs.items())
        watching, spoken = await self.store.read(lambda tx: (watchers(tx), spoken_to(tx)))
        for run, feed in looked:
            before = feed.be_watched(run, watching.get(feed.session_id, ()))
            if set(before) - set(run.watching):
                await self.store.write(forget_lapsed)
            if run.over or not feed.chat.conversation.turn:  # cut off, or taken over by another process
                self.end(run)
        ours = spoken & {feed.session_id for feed in self._runs.values()}
        if ours:
            for session_id, said in await self.store.write(lambda tx: take_words(tx, ours)):
                for feed in [one for one in self._runs.values() if one.session_id == session_id]:
                    feed.hear(said)

    def _lead(self) -> None:
        for run, feed in self._runs.items():
            self._leader = run
            if start(feed.jobs, self._look_out(run)) is not None:
                return
        self._leader = None

    async def _look_out(self, leader: "_Run") -> None:
        async with self.store.heeding(LIVE) as rung:
            self._rung = rung
            while self._leader is leader:
                rung.clear()
                try:
                    await self.look()
                except StoreError as error:
                    log.debug("nobody looks after those who watch: %s", error)
                if self._leader is leader:
                    await rung.wait()


class Feed:
    """What is told of one open conversation; `event` takes note of what happens and never waits.

    ``moved`` is called when the conversation was taken to another place in the middle of a turn.
    """

    def __init__(
        self,
        feeds: LiveFeeds,
        chat: Chat,
        jobs: asyncio.TaskGroup,
        emit: Callable[[TurnEvent], None],
        moved: Callable[[], None] | None = None,
    ) -> None:
        self.chat = chat
        self.session_id: SessionId = chat.conversation.session_id
        self.jobs = jobs
        self._feeds = feeds
        self._emit = emit
        self._moved = moved
        self._run: _Run | None = None
        self._telling: asyncio.Task[None] | None = None
        self._told_from = 0

    def event(self, event: TurnEvent) -> None:
        """Hand an event on, and note it for those who watch, or will."""
        self._emit(event)
        if isinstance(event, TurnBegan):
            self._over()
            self._run = _Run(event.turn_id)
            self._run.note(event)
            self._feeds.begin(self._run, self)
        elif self._run is not None:
            self._run.note(event)
            if isinstance(event, TurnEnd):
                self._over()

    def be_watched(self, run: "_Run", watching: Collection[str]) -> Collection[str]:
        """Take note of who watches a turn now, and return who did; whoever is new is told what happened so far."""
        run.looked, before = True, run.watching
        run.newcomers |= bool(set(watching) - set(before))
        run.watching = watching
        if run.newcomers:
            run.stirred.set()
            if not run.told:
                run.told = True
                self._telling = start(self.jobs, self._tell(run, self._telling))
        return before

    def hear(self, said: Spoken) -> None:
        """Act on what somebody said to the running turn; what was meant for an earlier one is too late."""
        if self._run is None or self._run.turn_id != said.turn_id:
            return
        match said.word:
            case Stop():
                self.chat.conversation.stop()
            case Answer(question_id=question_id, text=text):
                self.chat.questions.answer(question_id, text)
            case Nudge(steered=steered):
                self.chat.conversation.nudge(steered=steered)
            case Moved(move=move):
                turn = self.chat.conversation.turn
                if self._moved is not None and turn is not None and turn.move != move:
                    self._moved()
            case _:
                assert_never(said.word)

    async def close(self) -> None:
        """Tell what is still to be told, if that can be done soon."""
        self._over()
        self._feeds.end_all(self)
        if self._telling is not None and not self._telling.done():
            await asyncio.wait([self._telling], timeout=_LAST_WORDS)
            self._telling.cancel()

    def _over(self) -> None:
        """Tell no more of the turn than happened; one that was shorter than a look is told of behind the next one."""
        run, self._run = self._run, None
        if run is not None:
            run.over = True
            run.stirred.set()
            if run.looked:
                self._feeds.end(run)

    async def _tell(self, run: "_Run", before: asyncio.Task[None] | None) -> None:
        """Tell of one turn, several times a second as long as something happens in it, behind the one before."""
        if before is not None:
            await asyncio.wait([before])
        first = True
        while not run.over or run.has_news or run.newcomers:
            await run.stirred.wait()
            run.stirred.clear()
            if not run.over and not run.newcomers:
                await asyncio.sleep(_GATHERING)
            rows = run.take(self.chat.questions.waiting)
            if rows and await self._told(rows, begins=first):
                first = False

    async def _told(self, rows: list[tuple[str, str]], *, begins: bool) -> bool:
        """Write what is told; with each turn that begins all goes that was told before the one before it."""
        stream, before = stream_of(self.session_id), self._told_from - 1

        def work(tx: Transaction) -> int:
            if begins and before > 0:
                tx.events.drop(stream, through=before)
            return tx.events.append(stream, rows)

        try:
            last = await self._feeds.store.write(work)
            await self._feeds.store.hint(stream)
        except StoreError as error:
            log.info("those who watch are told nothing: %s", error)
            return False
        if begins:
            self._told_from = last - len(rows) + 1
        return True


class _Run:
    """One turn, as long as one process works on it."""

    def __init__(self, turn_id: TurnId) -> None:
        self.id = new_id()
        self.turn_id = turn_id
        self.watching: Collection[str] = ()
        self.newcomers = self.told = self.over = self.looked = False
        self.stirred = asyncio.Event()
        self._so_far = Digest()
        self._news = Digest()
        self._asked: set[str] = set()
        self.has_news = False

    def note(self, event: Seen) -> None:
        """Note something that happens."""
        if not isinstance(event, ToolProgressed):
            self._so_far.add(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._asked.add(event.id)
        if self.watching:
            self._news.add(event)
            self.has_news = True
            self.stirred.set()

    def take(self, waiting: Collection[str]) -> list[tuple[str, str]]:
        """Return what is to be told now; ``waiting`` are the questions that are open."""
        for closed in self._asked.difference(waiting):
            self._asked.discard(closed)
            self.note(QuestionClosed(closed))
        rows = []
        if self.has_news:
            rows.append((NEWS, self._told(self._news)))
            self._news, self.has_news = Digest(), False
        if self.newcomers:
            rows.append((SO_FAR, self._told(self._so_far)))
            self.newcomers = False
        return rows

    def _told(self, digest: Digest) -> str:
        return encode_telling(Telling(self.id, tuple(digest.gathered())))


def start(jobs: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Begin something beside a conversation; nothing is begun beside one that is being closed."""
    try:
        return jobs.create_task(work)
    except RuntimeError:
        work.close()
        return None
