"""Manager of the goal of a session for commands and programs: set, pause, resume, drop, judge."""

from collections.abc import Callable
from typing import TypeGuard

from msgspec import Struct, structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound, Refused
from talaria.core.ids import SessionId, new_id, new_turn_id
from talaria.core.messages import UNKNOWN
from talaria.goals.follower import Judge
from talaria.goals.goal import Allowance, GoalState, JudgedTurn, Verdict, resolve_process
from talaria.goals.goal_parser import parse_goal
from talaria.goals.goal_store import (
    add_usage,
    get_usage,
    is_turn_running,
    queue_first_step,
    queue_next_step,
    read_history,
    record_verdict,
    withdraw_steps,
    write_goal,
)
from talaria.goals.stored_goal import StoredGoal, read_goal
from talaria.goals.transitions import NextStep, build_continuation, format_goal_status, turn_judged

_NO_GOAL = "There is no goal. `/goal <text>` sets one."
_TURN_RUNNING = "A turn is running: stop it first (`/stop`)."
_DEFAULT_HISTORY = 20

GoalChange = Callable[[Transaction, StoredGoal], GoalState | None]


class GoalDecision(Struct, frozen=True, kw_only=True):
    """The verdict on a turn, and whether to run another, ``wait_seconds`` from now at the earliest."""

    verdict: Verdict
    reason: str
    wait_seconds: float = 0
    should_continue: bool = False
    continuation_prompt: str | None = None


class GoalManager:
    """Manager of the goal of one session.

    ``state`` and all methods that are not awaited return the goal as it was last loaded or changed here. Every change
    is one transaction; several processes may make them.
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
        defaults = allowance or Allowance()
        self._defaults = defaults if default_max_turns is None else structs.replace(defaults, turns=default_max_turns)
        self._judge = judge or Judge(session_id, store, None)
        self._clock = clock or SystemClock()
        self._state: GoalState | None = None

    @property
    def state(self) -> GoalState | None:
        """The goal as it was last loaded or changed here."""
        return self._state

    def is_active(self) -> bool:
        """Return whether the goal is active."""
        return self._state is not None and self._state.status == "active"

    def has_goal(self) -> bool:
        """Return whether there is a goal that is neither reached nor dropped."""
        return self._state is not None and self._state.status != "done"

    def status_line(self) -> str:
        """Return the status of the goal in one line."""
        return format_goal_status(self._state)

    def next_continuation_prompt(self) -> str | None:
        """Return the message of the next step, or ``None`` if the goal is not active."""
        if self._state is None or self._state.status != "active":
            return None
        return build_continuation(self._state, self._state.last.reason if self._state.last else "")

    async def load(self) -> GoalState | None:
        """Load the goal from the store and return it."""
        self._state = (await self._store.read(lambda tx: read_goal(tx, self._session_id))).state
        return self._state

    async def set(self, text: str, *, vouched: bool = True, sender: str = UNKNOWN) -> GoalState:
        """Set or replace the goal and queue its first turn.

        Raises `Refused` for a blank text or during a turn. With ``vouched`` the owner of the agent asked for it, so its
        verify command runs without approval. Its turns have the rights of ``sender``.
        """
        request = parse_goal(text, self._defaults)
        goal_id = new_id()

        def begin(tx: Transaction, stored: StoredGoal) -> GoalState:
            self._refuse_during_turn(tx)
            withdraw_steps(tx, self._session_id)
            now = self._clock.now()
            state = GoalState(
                id=goal_id,
                goal=request.goal,
                contract=request.contract,
                allowance=request.allowance,
                set_at=now,
                since=now,
                usage=get_usage(tx, self._session_id),
                vouched=vouched,
                sender=sender,
            )
            queue_first_step(tx, self._session_id, state, text.strip())
            return state

        _, state = await self._change(begin)
        assert state is not None
        return state

    async def pause(self, reason: str = "you paused it") -> GoalState | None:
        """Pause the goal and withdraw its pending step; return ``None`` if it was not active."""

        def stop(tx: Transaction, stored: StoredGoal) -> GoalState | None:
            if stored.state is None or stored.state.status != "active":
                return stored.state
            withdraw_steps(tx, self._session_id)
            return structs.replace(stored.state.paused(reason), untold="")

        before, after = await self._change(stop)
        return after if before is not None and before.status == "active" else None

    async def resume(self) -> GoalState:
        """Resume the goal with its counters at zero, ending a wait, and queue the next step.

        Raises `Refused` without a goal, if it is reached or active without a wait, and during a turn.
        """

        def restart(tx: Transaction, stored: StoredGoal) -> GoalState:
            state = stored.state
            if state is None:
                raise Refused(_NO_GOAL)
            if state.status == "done":
                raise Refused("The goal is reached. `/goal <text>` sets another.")
            if state.status == "active" and state.parked is None:
                raise Refused("The goal is already active.")
            self._refuse_during_turn(tx)
            withdraw_steps(tx, self._session_id)
            now = self._clock.now()
            resumed = structs.replace(state.resumed(now, get_usage(tx, self._session_id)), untold="")
            reason = state.last.reason if state.last else ""
            queue_next_step(tx, self._session_id, resumed, NextStep(f"resume:{resumed.resumes}", reason), now)
            return resumed

        _, state = await self._change(restart)
        assert state is not None
        return state

    async def clear(self) -> bool:
        """Drop the goal and withdraw its pending step; return ``False`` if there was none."""
        before, _ = await self._change(lambda tx, _: withdraw_steps(tx, self._session_id))
        return before is not None

    async def add_subgoal(self, text: str, *, is_setter: Callable[[str], bool] | None = None) -> GoalState:
        """Add a criterion that must be met as well; it applies from the next verdict on.

        Raises `Refused` if ``is_setter`` returns that another person set the goal: its turns have that person's rights.
        """
        criterion = " ".join(text.split())
        if not criterion:
            raise Refused("Say what the criterion is: `/subgoal <text>`.")

        def add(state: GoalState) -> GoalState:
            if is_setter is not None and not is_setter(state.setter):
                raise Refused("Only the person who set this goal can add criteria to it.")
            return structs.replace(state, subgoals=(*state.subgoals, criterion))

        return await self._change_open_goal(add)

    async def remove_subgoal(self, number: int) -> GoalState:
        """Remove a criterion by its number, counted from 1."""

        def remove(state: GoalState) -> GoalState:
            if not 1 <= number <= len(state.subgoals):
                raise NotFound(f"There is no criterion {number}; `/subgoal` lists them.")
            return structs.replace(state, subgoals=(*state.subgoals[: number - 1], *state.subgoals[number:]))

        return await self._change_open_goal(remove)

    async def history(self, last: int = _DEFAULT_HISTORY) -> list[JudgedTurn]:
        """Return the last verdicts of this session, oldest first."""
        return await self._store.read(lambda tx: read_history(tx, self._session_id, last))

    async def evaluate_after_turn(self, reply: str) -> GoalDecision:
        """Judge a turn that ended with this reply, count it, and return whether to run another.

        Nothing is queued: the caller runs the next turn. An open session has a `GoalFollower`, which does both in one
        transaction.
        """
        state = await self.load()
        if state is None or state.status != "active":
            return GoalDecision(verdict="inactive", reason="There is no active goal.")
        opinion, watched = resolve_process(await self._judge.opinion(state, reply))
        turn = state.pending.turn if state.pending else new_turn_id()

        def is_same(stored: GoalState | None) -> TypeGuard[GoalState]:
            return stored is not None and (stored.id, stored.status) == (state.id, "active")

        def count(tx: Transaction, stored: StoredGoal) -> GoalState | None:
            usage = add_usage(tx, self._session_id, opinion.usage, has_price=opinion.has_price)
            if not is_same(stored.state):
                return stored.state
            transition = turn_judged(stored.state, opinion, turn, usage, watched, self._clock.now())
            record_verdict(tx, self._session_id, transition.verdict)
            return transition.state

        before, after = await self._change(count)
        if after is None or not is_same(before):
            return GoalDecision(verdict="inactive", reason="The goal changed in the meantime.")
        continues = after.status == "active" and (after.parked is None or bool(opinion.failure))
        wait = (after.parked.until - self._clock.now()).total_seconds() if after.parked else 0.0
        return GoalDecision(
            wait_seconds=max(wait, 0.0),
            verdict=opinion.verdict,
            reason=after.paused_reason or opinion.reason,
            should_continue=continues,
            continuation_prompt=build_continuation(after, opinion.reason) if continues else None,
        )

    async def _change_open_goal(self, change: Callable[[GoalState], GoalState]) -> GoalState:
        def work(tx: Transaction, stored: StoredGoal) -> GoalState:
            if stored.state is None or stored.state.status == "done":
                raise Refused(_NO_GOAL)
            return change(stored.state)

        _, state = await self._change(work)
        assert state is not None
        return state

    async def _change(self, change: GoalChange) -> tuple[GoalState | None, GoalState | None]:
        """Change the goal in one transaction, and return it before and after."""

        def work(tx: Transaction) -> tuple[GoalState | None, GoalState | None]:
            stored = read_goal(tx, self._session_id)
            state = change(tx, stored)
            if state != stored.state:
                write_goal(tx, self._session_id, stored, state)
            return stored.state, state

        before, self._state = await self._store.write(work)
        return before, self._state

    def _refuse_during_turn(self, tx: Transaction) -> None:
        if is_turn_running(tx, self._session_id):
            raise Refused(_TURN_RUNNING)
