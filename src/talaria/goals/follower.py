"""Follow-up of a session's turns that judges them and queues the next step of the goal."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

from msgspec import structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.contracts.turns import AfterCommit, TurnResult
from talaria.core.aio import shield_until_done
from talaria.core.errors import OverBudget, StoreError, TalariaError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.goals.goal import (
    GoalState,
    JudgeFailure,
    Opinion,
    Waiting,
    read_goal,
    read_verdict,
    resolve_process,
    wait_until_over,
)
from talaria.goals.goal_store import (
    GoalNotice,
    conclude_turn,
    end_wait,
    find_next_action,
    list_running_processes,
    record_turn_end,
    take_notice,
)
from talaria.goals.transitions import (
    JUDGE_PROMPT,
    Evidence,
    Idle,
    JudgeTurn,
    Notify,
    SessionBusy,
    WaitUntil,
    build_judge_question,
)

ANSWER_TOKENS = 2_000
_OUTPUT_TAIL = 300
log = logging.getLogger(__name__)


class JudgeModel(Protocol):
    """One call of an auxiliary model."""

    async def __call__(self, instructions: str, text: str, *, max_tokens: int) -> tuple[str, Usage]:
        """Return the answer and its usage; raises `OverBudget` at a spending limit."""


class CommandRunner(Protocol):
    """Runner of a command in the session's workspace that leaves no processes, even if cancelled."""

    async def __call__(self, command: str, *, vouched: bool) -> Evidence:
        """Run a command and return how it ended.

        Without ``vouched`` the rules for the agent's own commands apply.
        """


class Judge:
    """Judge of the turns of one session; without ``ask`` no model is available."""

    def __init__(
        self,
        session_id: SessionId,
        store: Store,
        ask: JudgeModel | None,
        *,
        seconds: float = 60,
        verify: CommandRunner | None = None,
        has_price: bool = True,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._ask = ask
        self._has_price = has_price
        self._seconds = seconds
        self._verify = verify

    async def judge_turn(self, state: GoalState, reply: str) -> Opinion:
        """Return the opinion about a turn with this reply.

        A goal is not reached while its verify command fails.
        """
        if not state.goal.strip():
            return Opinion(verdict="skipped", reason="There is no goal to judge by.")
        evidence = await self._gather_evidence(state)
        if not reply.strip():
            result = Opinion(verdict="continue", reason="The turn ended without a reply.")
        else:
            result = await self._ask_model(state, reply, evidence)
        if evidence is None:
            return result
        if result.verdict == "done" and not evidence.passed:
            reason = _explain_unproved(state.contract.verify, evidence)
            result = structs.replace(result, verdict="continue", reason=reason)
        return structs.replace(result, exit_code=evidence.exit_code)

    async def _gather_evidence(self, state: GoalState) -> Evidence | None:
        if not state.contract.verify:
            return None
        if self._verify is None:
            return Evidence(None, "Commands can't be run here.")
        return await self._verify(state.contract.verify, vouched=state.vouched)

    async def _ask_model(self, state: GoalState, reply: str, evidence: Evidence | None) -> Opinion:
        if self._ask is None:
            return _make_unjudged("there is no model to judge it")
        try:
            running = await self._store.read(lambda tx: list_running_processes(tx, self._session_id))
            text = build_judge_question(state, reply, evidence, running)
            async with asyncio.timeout(self._seconds):
                answer, usage = await self._ask(JUDGE_PROMPT, text, max_tokens=ANSWER_TOKENS)
        except TimeoutError:
            return _make_unjudged(f"the judge took longer than {self._seconds:.0f} s")
        except OverBudget:
            return Opinion(
                verdict="stop", reason="the budget doesn't allow another judge call (see `budget` in the settings)"
            )
        except TalariaError as error:
            log.info("session %s: the judge failed: %s", self._session_id, error)
            return _make_unjudged("the judge model isn't available")
        except Exception:
            log.exception("session %s: the judge failed", self._session_id)
            return _make_unjudged("the judge failed")
        result = read_verdict(answer) or _make_unjudged("the judge's answer couldn't be read", "unreadable")
        if result.verdict == "stop" and not state.contract.stop_when:
            result = structs.replace(result, verdict="continue")
        return structs.replace(result, usage=usage, has_price=self._has_price)


def _make_unjudged(why: str, failure: JudgeFailure = "unavailable") -> Opinion:
    return Opinion(verdict="continue", reason=f"The last turn couldn't be judged: {why}.", failure=failure)


def _explain_unproved(command: str, evidence: Evidence) -> str:
    how = "didn't finish" if evidence.exit_code is None else f"ended with exit code {evidence.exit_code}"
    tail = " ".join(evidence.output[-_OUTPUT_TAIL:].split())
    return f"`{command}` {how}" + (f": {tail}" if tail else ".")


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_POLL_INTERVAL = 1.0


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
                await shield_until_done(self._notify())  # a notice that is taken must be shown
            case JudgeTurn() as judged:
                return await self._judge_turn(judged)
            case WaitUntil(parked):
                return await self._wait(parked)
        return None

    async def _notify(self) -> None:
        self._show(await self._store.write(lambda tx: take_notice(tx, self._session_id, self._key)))

    async def _judge_turn(self, judged: JudgeTurn) -> bool | None:
        judge = self._judge = self._judge or self._make_judge()
        opinion = await judge.judge_turn(judged.state, judged.pending.reply)
        return await shield_until_done(self._conclude(judged, opinion))

    async def _conclude(self, judged: JudgeTurn, opinion: Opinion) -> bool | None:
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
