"""Manager of the goal of a session: read it as people type it, then set, pause, resume, drop, judge."""

import re
from collections.abc import Callable
from typing import TypeGuard

from msgspec import Struct, structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound, Refused
from talaria.core.ids import SessionId, new_id, new_turn_id
from talaria.core.messages import UNKNOWN
from talaria.goals.follower import Judge
from talaria.goals.goal import (
    Allowance,
    GoalContract,
    GoalState,
    JudgedTurn,
    StoredGoal,
    Verdict,
    read_goal,
    resolve_process,
)
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
from talaria.goals.transitions import NextStep, apply_verdict, build_continuation, format_goal_status

_LABELS = {
    "verify": "verify",
    "constraint": "constraints",
    "constraints": "constraints",
    "scope": "scope",
    "stop when": "stop_when",
    "budget": "budget",
}
_LABEL_LINE = re.compile(rf"\s*({'|'.join(_LABELS)})\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
# A bar separates parts only before a label, because commands may contain bars too.
_BAR = re.compile(rf"(?<!\s)\s+\|\s+(?=(?:{'|'.join(_LABELS)})\s*:)", re.IGNORECASE)
_AMOUNT = re.compile(r"(\$?)\s*(\d[\d_]*(?:\.\d+)?)\s*([km]?)\s*(turns?|tokens?|\$|dollars?|usd|[a-z]*)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400}
_MAX_AMOUNT = 10**15
_MAX_LENGTH = 20_000
_NO_GOAL = "There is no goal. `/goal <text>` sets one."
_TURN_RUNNING = "A turn is running: stop it first (`/stop`)."
_DEFAULT_HISTORY = 20
GoalChange = Callable[[Transaction, StoredGoal], GoalState | None]


class GoalRequest(Struct, frozen=True):
    """A parsed goal: its text, contract and allowance."""

    goal: str
    contract: GoalContract
    allowance: Allowance


def parse_goal(text: str, default: Allowance) -> GoalRequest:
    """Parse a goal; raises `Refused` if it has no text, is too long or has an invalid budget.

    A line that begins with ``verify:``, ``constraints:``, ``scope:``, ``stop when:`` or ``budget:`` belongs to the
    contract. Within a line, a bar with a space on either side separates them.
    """
    if len(text) > _MAX_LENGTH:
        raise Refused(f"A goal may have at most {_MAX_LENGTH:,} characters. Put the details in a file and name it.")
    goal: list[str] = []
    found: dict[str, list[str]] = {}
    for line in _BAR.sub("\n", text.strip()).splitlines():
        labelled = _LABEL_LINE.fullmatch(line)
        if labelled is None:
            goal.append(line)
        else:
            found.setdefault(_LABELS[labelled[1].lower()], []).append(labelled[2].strip())
    goal_text = "\n".join(goal).strip()
    if not goal_text:
        raise Refused("Say what the goal is: `/goal <text>`.")
    allowance = default
    for line in found.pop("budget", []):
        allowance = parse_budget(line, allowance)
    contract = GoalContract(
        **{name: (" && " if name == "verify" else "\n").join(lines) for name, lines in found.items()}
    )
    return GoalRequest(goal_text, contract, allowance)


def parse_budget(text: str, default: Allowance) -> Allowance:
    """Return the allowance with the limits of a text like ``30 turns, 200k tokens, $2, 2h``.

    Limits that are not named keep their default. Raises `Refused` for amounts that cannot be parsed.
    """
    allowance = default
    for item in filter(None, (part.strip() for part in re.split(r",(?!\d)|;|\band\b", text))):
        amount = _AMOUNT.fullmatch(item.replace(",", ""))
        changes = _parse_amount(*amount.groups()) if amount else None
        if not changes or not all(changes.values()):
            raise Refused(f"I don't understand the budget `{item}`. Write it like `30 turns, 200k tokens, $2, 2h`.")
        allowance = structs.replace(allowance, **changes)
    return allowance


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
            return structs.replace(stored.state.pause(reason), untold="")

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
            resumed = structs.replace(state.resume(now, get_usage(tx, self._session_id)), untold="")
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
        opinion, watched = resolve_process(await self._judge.judge_turn(state, reply))
        turn = state.pending.turn if state.pending else new_turn_id()

        def is_same(stored: GoalState | None) -> TypeGuard[GoalState]:
            return stored is not None and (stored.id, stored.status) == (state.id, "active")

        def count(tx: Transaction, stored: StoredGoal) -> GoalState | None:
            usage = add_usage(tx, self._session_id, opinion.usage, has_price=opinion.has_price)
            if not is_same(stored.state):
                return stored.state
            transition = apply_verdict(stored.state, opinion, turn, usage, watched, self._clock.now())
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


def _parse_amount(sign: str, number: str, factor: str, unit: str) -> dict[str, int] | None:
    """Return the limit that an amount sets, and its value; ``None`` for an unknown unit."""
    value, unit = float(number.replace("_", "")), unit.lower()
    noun = unit.removesuffix("s") or unit
    scaled = min(value * _FACTORS[factor.lower()], _MAX_AMOUNT)
    if sign or unit in {"$", "usd", "dollar", "dollars"}:
        return {"microdollars": round(scaled * 1_000_000)} if unit in {"", "$", "usd", "dollar", "dollars"} else None
    if noun in {"turn", "token"}:
        return {f"{noun}s": round(scaled)}
    time = (factor + unit).lower()
    length = _SECONDS.get(time) or _SECONDS.get(time.removesuffix("s"))
    return {"seconds": round(min(value, _MAX_AMOUNT) * length)} if length else None
