"""The goal of a conversation as commands and programs handle it: set, paused, resumed, dropped, judged."""

from collections.abc import Callable

from msgspec import Struct, structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound, Refused
from talaria.core.ids import SessionId, new_id, new_turn_id
from talaria.core.senders import UNKNOWN
from talaria.goals.deciding import counted_and_decided
from talaria.goals.goal import Allowance, GoalState, Judged, Verdict
from talaria.goals.judge import Judge
from talaria.goals.keeping import (
    Kept,
    put_continuation,
    put_kick_off,
    read_goal,
    read_history,
    record,
    usage_of,
    withdraw,
    write_goal,
)
from talaria.goals.prompts import continuation, standing
from talaria.goals.waiting import with_process
from talaria.goals.wording import read_wish

_NONE = "There is no goal. `/goal <text>` sets one."
_BUSY = "A turn is running: stop it first (`/stop`)."
_SHOWN_VERDICTS = 20

Change = Callable[[Transaction, Kept], GoalState | None]


class Decision(Struct, frozen=True, kw_only=True):
    """The verdict on a turn, and whether there is to be another, ``wait_seconds`` from now at the earliest."""

    verdict: Verdict
    reason: str
    wait_seconds: float = 0
    should_continue: bool = False
    continuation_prompt: str | None = None


class GoalManager:
    """The goal of one conversation.

    ``state`` and all that is not awaited look at the goal as it was last loaded or changed here. Every change is one
    transaction; several processes may make them.
    """

    def __init__(
        self,
        session_id: SessionId,
        default_max_turns: int | None = None,
        *,
        store: Store,
        allowance: Allowance | None = None,
        judge: Judge | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._session_id = session_id
        self._store = store
        usual = allowance or Allowance()
        self._usual = usual if default_max_turns is None else structs.replace(usual, turns=default_max_turns)
        self._judge = judge or Judge(session_id, store, None)
        self._clock = clock or SystemClock()
        self._state: GoalState | None = None

    @property
    def state(self) -> GoalState | None:
        """The goal as it was last seen."""
        return self._state

    def is_active(self) -> bool:
        """Tell whether it is being worked at."""
        return self._state is not None and self._state.status == "active"

    def has_goal(self) -> bool:
        """Tell whether there is one that is neither reached nor dropped."""
        return self._state is not None and self._state.status != "done"

    def status_line(self) -> str:
        """Return in a line how it stands."""
        return standing(self._state)

    def next_continuation_prompt(self) -> str | None:
        """Return the message with which the work would go on, or ``None`` if it does not."""
        if self._state is None or self._state.status != "active":
            return None
        return continuation(self._state, self._state.last.reason if self._state.last else "")

    async def load(self) -> GoalState | None:
        """Look at the goal as it is now, and return it."""
        self._state = (await self._store.read(lambda tx: read_goal(tx, self._session_id))).state
        return self._state

    async def set(self, text: str, *, vouched: bool = True, sender: str = UNKNOWN) -> GoalState:
        """Set or replace the goal, with its first turn in the inbox; raises `Refused` for a blank one.

        ``vouched`` says that the owner of the agent wants it: then what verifies it runs without asking. Its turns have
        the rights of ``sender``.
        """
        wish = read_wish(text, self._usual)
        goal_id = new_id()

        def begin(tx: Transaction, kept: Kept) -> GoalState:
            _refuse_during_a_turn(tx, self._session_id)
            withdraw(tx, self._session_id)
            now = self._clock.now()
            state = GoalState(
                id=goal_id,
                goal=wish.goal,
                contract=wish.contract,
                allowance=wish.allowance,
                set_at=now,
                since=now,
                usage=usage_of(tx, self._session_id),
                vouched=vouched,
                sender=sender,
            )
            put_kick_off(tx, self._session_id, state, text.strip())
            return state

        state = await self._change(begin)
        assert state is not None
        return state

    async def pause(self, reason: str = "you paused it") -> GoalState | None:
        """Stop going on; a step that waits is taken back. Returns ``None`` where nothing was active."""
        was_active = False

        def stop(tx: Transaction, kept: Kept) -> GoalState | None:
            nonlocal was_active
            was_active = kept.state is not None and kept.state.status == "active"
            if kept.state is None or not was_active:
                return kept.state
            withdraw(tx, self._session_id)
            return structs.replace(kept.state.paused(reason), untold="")

        after = await self._change(stop)
        return after if was_active else None

    async def resume(self) -> GoalState:
        """Go on with the counters at zero, with the next step in the inbox, or raise `Refused`; it also ends a wait."""

        def go_on(tx: Transaction, kept: Kept) -> GoalState:
            state = kept.state
            if state is None:
                raise Refused(_NONE)
            if state.status == "done":
                raise Refused("The goal is reached. `/goal <text>` sets another.")
            if state.status == "active" and state.parked is None:
                raise Refused("The goal is being worked at already.")
            _refuse_during_a_turn(tx, self._session_id)
            withdraw(tx, self._session_id)
            now = self._clock.now()
            resumed = structs.replace(state.resumed(now, usage_of(tx, self._session_id)), untold="")
            reason = state.last.reason if state.last else ""
            put_continuation(tx, self._session_id, resumed, f"resume:{resumed.resumes}", reason, now)
            return resumed

        state = await self._change(go_on)
        assert state is not None
        return state

    async def clear(self) -> bool:
        """Drop the goal, with a step of it that waits; ``False`` if there was none."""
        was_there = False

        def drop(tx: Transaction, kept: Kept) -> None:
            nonlocal was_there
            was_there = kept.state is not None
            withdraw(tx, self._session_id)

        await self._change(drop)
        return was_there

    async def add_subgoal(self, text: str, *, is_setter: Callable[[str], bool] | None = None) -> GoalState:
        """Add a criterion that has to be met as well; it counts from the next verdict on.

        Raises `Refused` where ``is_setter`` says that another person set the goal: its turns have that person's rights.
        """
        wanted = " ".join(text.split())
        if not wanted:
            raise Refused("A criterion needs words: `/subgoal <text>`.")

        def added(state: GoalState) -> GoalState:
            if is_setter is not None and not is_setter(state.setter):
                raise Refused("Only the person who set this goal can add criteria to it.")
            return structs.replace(state, subgoals=(*state.subgoals, wanted))

        return await self._change_standing(added)

    async def remove_subgoal(self, number: int) -> GoalState:
        """Remove a criterion by its number, counted from 1."""

        def without(state: GoalState) -> GoalState:
            if not 1 <= number <= len(state.subgoals):
                raise NotFound(f"There is no criterion {number}; `/subgoal` lists them.")
            return structs.replace(state, subgoals=(*state.subgoals[: number - 1], *state.subgoals[number:]))

        return await self._change_standing(without)

    async def history(self, last: int = _SHOWN_VERDICTS) -> list[Judged]:
        """Return the last verdicts of this conversation, oldest first."""
        return await self._store.read(lambda tx: read_history(tx, self._session_id, last))

    async def evaluate_after_turn(self, reply: str) -> Decision:
        """Judge a turn that ended with this reply, count it, and say whether there is to be another.

        It puts nothing into the inbox: whoever calls it takes the next turn. A conversation that is open has a
        `GoalFollower`, which does both in one transaction.
        """
        state = await self.load()
        if state is None or state.status != "active":
            return Decision(verdict="inactive", reason="There is no goal that is being worked at.")
        opinion, watched = with_process(await self._judge.opinion(state, reply))
        turn = state.pending.turn if state.pending else new_turn_id()
        decided = False

        def count(tx: Transaction, kept: Kept) -> GoalState | None:
            nonlocal decided
            decided = kept.state is not None and (kept.state.id, kept.state.status) == (state.id, "active")
            if kept.state is None or not decided:
                return kept.state
            now = self._clock.now()
            counted = counted_and_decided(kept.state, opinion, turn, usage_of(tx, self._session_id), watched, now)
            assert counted.last is not None
            record(tx, self._session_id, counted.last)
            return counted

        after = await self._change(count)
        if after is None or not decided:
            return Decision(verdict="inactive", reason="The goal was changed meanwhile.")
        goes_on = after.status == "active" and (after.parked is None or bool(opinion.failure))
        wait = (after.parked.until - self._clock.now()).total_seconds() if after.parked else 0.0
        return Decision(
            wait_seconds=max(wait, 0.0),
            verdict=opinion.verdict,
            reason=after.paused_reason or opinion.reason,
            should_continue=goes_on,
            continuation_prompt=continuation(after, opinion.reason) if goes_on else None,
        )

    async def _change_standing(self, change: Callable[[GoalState], GoalState]) -> GoalState:
        def work(tx: Transaction, kept: Kept) -> GoalState:
            if kept.state is None or kept.state.status == "done":
                raise Refused(_NONE)
            return change(kept.state)

        state = await self._change(work)
        assert state is not None
        return state

    async def _change(self, change: Change) -> GoalState | None:
        def work(tx: Transaction) -> GoalState | None:
            kept = read_goal(tx, self._session_id)
            state = change(tx, kept)
            if state != kept.state:
                write_goal(tx, self._session_id, kept, state)
            return state

        self._state = await self._store.write(work)
        return self._state


def _refuse_during_a_turn(tx: Transaction, session_id: SessionId) -> None:
    if tx.turns.find(session_id, running=True, limit=1):
        raise Refused(_BUSY)
