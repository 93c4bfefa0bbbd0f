"""Judge of finished turns: verify command first, then one model call; failed judging means continue."""

import asyncio
import logging
from typing import Protocol

from msgspec import structs

from talaria.contracts.store import Store
from talaria.core.errors import OverBudget, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.goals.goal import GoalState, JudgeFailure, Opinion, read_verdict
from talaria.goals.goal_store import list_running_processes
from talaria.goals.transitions import JUDGE_PROMPT, Evidence, build_judge_question

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
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._ask = ask
        self._seconds = seconds
        self._verify = verify

    async def opinion(self, state: GoalState, reply: str) -> Opinion:
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
        return structs.replace(result, usage=usage)


def _make_unjudged(why: str, failure: JudgeFailure = "unavailable") -> Opinion:
    return Opinion(verdict="continue", reason=f"The last turn couldn't be judged: {why}.", failure=failure)


def _explain_unproved(command: str, evidence: Evidence) -> str:
    how = "didn't finish" if evidence.exit_code is None else f"ended with exit code {evidence.exit_code}"
    tail = " ".join(evidence.output[-_OUTPUT_TAIL:].split())
    return f"`{command}` {how}" + (f": {tail}" if tail else ".")
