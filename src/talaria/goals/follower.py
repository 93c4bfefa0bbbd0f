"""Follow-up of a session's turns that judges them and queues the next step of the goal."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.contracts.turn_listener import AfterCommit, TurnResult
from talaria.core.errors import StoreError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.ids import SessionId
from talaria.goals.goal import Waiting, resolve_process, wait_until_over
from talaria.goals.goal_store import GoalNotice, conclude_turn, end_wait, find_next_action, record_turn_end, take_notice
from talaria.goals.judge import Judge
from talaria.goals.stored_goal import read_goal
from talaria.goals.transitions import Idle, JudgeTurn, Notify, SessionBusy, WaitUntil

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0


_POLL_INTERVAL = 1.0


log = logging.getLogger(__name__)


class GoalFollower:
    """Driver of the goal of one session; implements `TurnFollowUp`.

    Each action is read from the store, so it may be interrupted anywhere and started again. ``make_judge`` is called
    for the first verdict. ``key`` is the session key of the chat that gets the notices, if it is one.
    """

    resumable: ClassVar = True

    def __init__(
        self,
        session_id: SessionId,
        *,
        store: Store,
        make_judge: Callable[[], Judge],
        emit: Callable[[TurnEvent], None],
        key: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._make_judge = make_judge
        self._judge: Judge | None = None
        self._emit = emit
        self._key = key
        self._clock = clock or SystemClock()
        self.has_follow_up = False  # a goal when the last turn ended, or one that is being followed and may be over
        self._has_goal = False
        self._following = 0  # calls of `follow_up` in progress: for a moment two, when one replaces another

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> AfterCommit | None:
        """Apply the end of a turn to the goal, in its transaction."""
        has_goal = read_goal(tx, ending.session_id).state is not None
        if has_goal:
            record_turn_end(tx, ending, self._clock.now())
        return partial(self._set_has_goal, has_goal) if has_goal != self._has_goal else None

    def _set_has_goal(self, has_goal: bool) -> None:
        self._has_goal = has_goal
        self.has_follow_up = has_goal or self._following > 0

    async def follow_up(self) -> bool:
        """Judge, wait and continue until nothing is left to do; return whether a step is queued.

        While the store cannot be reached this retries with growing pauses: nothing else would continue the goal.
        """
        self._following += 1
        self.has_follow_up = True
        try:
            return await self._follow()
        finally:
            self._following -= 1
            self.has_follow_up = self._has_goal or self._following > 0

    async def _follow(self) -> bool:
        pause = _FIRST_PAUSE
        while True:
            try:
                has_step = await self._take_step()
            except StoreError as error:
                log.warning("session %s: the goal is waiting for the store: %s", self._session_id, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                if has_step is not None:
                    return has_step

    async def _take_step(self) -> bool | None:
        """Run the next action; return whether a step is queued, or ``None`` if there may be more to do."""
        match await self._store.read(lambda tx: find_next_action(tx, self._session_id, self._clock.now())):
            case Idle(has_step):
                return has_step
            case SessionBusy():
                # A turn of this process starts the follow-up again; the end of another process's turn is polled.
                await asyncio.sleep(_POLL_INTERVAL)
            case Notify():
                await self._notify()
            case JudgeTurn() as judged:
                return await self._judge_turn(judged)
            case WaitUntil(parked):
                return await self._wait(parked)
        return None

    async def _notify(self) -> None:
        self._show(await self._store.write(lambda tx: take_notice(tx, self._session_id, self._key)))

    async def _judge_turn(self, judged: JudgeTurn) -> bool | None:
        judge = self._judge = self._judge or self._make_judge()
        opinion = await judge.opinion(judged.state, judged.pending.reply)
        opinion, watched = resolve_process(opinion)
        now = self._clock.now()
        conclusion = await self._store.write(
            lambda tx: conclude_turn(tx, self._session_id, judged, opinion, watched, now, self._key)
        )
        if conclusion is None:
            return None
        self._show(conclusion.notice)
        return True if conclusion.has_step else None

    async def _wait(self, parked: Waiting) -> bool | None:
        await wait_until_over(parked, self._clock)
        now = self._clock.now()
        has_step = await self._store.write(lambda tx: end_wait(tx, self._session_id, parked, now))
        return True if has_step else None

    def _show(self, notice: GoalNotice) -> None:
        if notice.text:
            self._emit(Noticed(notice.text, lasting=True, posted=notice.posted))
