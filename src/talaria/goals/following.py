"""Follow the turns of a conversation with a goal: judge each, and put the next step into the inbox."""

import asyncio
import logging
from collections.abc import Callable
from typing import ClassVar

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.ids import SessionId
from talaria.goals.deciding import Busy, Nothing, Tell, ToJudge, ToWait, conclude, end_wait, note_ending, what_is_next
from talaria.goals.goal import Parked
from talaria.goals.judge import Judge
from talaria.goals.keeping import told
from talaria.goals.waiting import until_over, with_process

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_LOOK_AGAIN = 1.0

log = logging.getLogger(__name__)


class GoalFollower:
    """Implements `Follower`.

    Whatever it does next is read from the store, so it may be cut off anywhere and called again as often as one likes.
    A place that is not ``lasting`` notes how turns end and leaves the rest to one that is.
    """

    resumable: ClassVar = True

    def __init__(
        self,
        session_id: SessionId,
        *,
        store: Store,
        judge: Judge,
        emit: Callable[[TurnEvent], None],
        lasting: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._judge = judge
        self._emit = emit
        self._lasting = lasting
        self._clock = clock or SystemClock()

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Take note, in the transaction that ends the turn."""
        note_ending(tx, ending, self._clock.now())

    async def follow_up(self) -> bool:
        """Judge, wait and go on, until the next step waits in the inbox or there is none.

        A store that is out of reach is asked again, ever more slowly: nobody else would go on with the goal.
        """
        pause = _FIRST_PAUSE
        while self._lasting:
            try:
                waits = await self._one_step()
            except StoreError as error:
                log.warning("session %s: the goal waits for the store: %s", self._session_id, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                if waits is not None:
                    return waits
        return False

    async def _one_step(self) -> bool | None:
        """Do what is next, and return whether a step waits in the inbox as soon as there is nothing more to do."""
        match await self._store.read(lambda tx: what_is_next(tx, self._session_id, self._clock.now())):
            case Nothing(waits):
                return waits
            case Busy():
                # A turn of this program's own calls this anew; the end of another program's has to be looked for.
                await asyncio.sleep(_LOOK_AGAIN)
            case Tell():
                await self._tell()
            case ToJudge() as judged:
                await self._judge_turn(judged)
            case ToWait(parked):
                await self._wait(parked)
        return None

    async def _tell(self) -> None:
        text = await self._store.write(lambda tx: told(tx, self._session_id))
        if text:
            self._emit(Noticed(text, lasting=True))

    async def _judge_turn(self, judged: ToJudge) -> None:
        opinion = await self._judge.opinion(judged.state, judged.pending.reply)
        opinion, watched = with_process(opinion)
        now = self._clock.now()
        await self._store.write(lambda tx: conclude(tx, self._session_id, judged, opinion, watched, now))

    async def _wait(self, parked: Parked) -> None:
        await until_over(parked, self._clock)
        now = self._clock.now()
        await self._store.write(lambda tx: end_wait(tx, self._session_id, parked, now))
