"""Judge a finished turn: evidence first, then one call of a model; whatever ails the judge, the work goes on."""

import asyncio
import logging
from typing import Protocol

from msgspec import structs

from talaria.contracts.processes import list_processes
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import OverBudget, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.goals.goal import GoalState, JudgeFailure
from talaria.goals.prompts import JUDGE, Evidence, RunningProcess, question
from talaria.goals.verdicts import Opinion, read_verdict

ANSWER_TOKENS = 2_000
_SHOWN_OUTPUT = 300

log = logging.getLogger(__name__)


class AsksModel(Protocol):
    """One call of an auxiliary model."""

    async def __call__(self, instructions: str, text: str, *, most_tokens: int) -> tuple[str, Usage]:
        """Return the answer and what it took; raises `OverBudget` where that may not be spent."""


class RunsCommand(Protocol):
    """Runs a command where the conversation works, and leaves nothing behind, cancelled or not."""

    async def __call__(self, command: str, *, vouched: bool) -> Evidence:
        """Return how it ended; one that nobody vouches for is under the rules for the agent's own commands."""


class Judge:
    """Judges the turns of one conversation; without ``ask`` there is no model to do it."""

    def __init__(
        self,
        session_id: SessionId,
        store: Store,
        ask: AsksModel | None,
        *,
        seconds: float = 60,
        verify: RunsCommand | None = None,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._ask = ask
        self._seconds = seconds
        self._verify = verify

    async def opinion(self, state: GoalState, reply: str) -> Opinion:
        """Return what to think of a turn that ended with this reply; a goal is not reached while its command fails."""
        if not state.goal.strip():
            return Opinion(verdict="skipped", reason="There is no goal to judge by.")
        evidence = await self._evidence(state)
        if not reply.strip():
            said = Opinion(verdict="continue", reason="The turn ended without a reply.")
        else:
            said = await self._asked(state, reply, evidence)
        if evidence is None:
            return said
        if said.verdict == "done" and not evidence.passed:
            said = Opinion(verdict="continue", reason=_unproved(state.contract.verify, evidence))
        return structs.replace(said, exit_code=evidence.exit_code)

    async def _evidence(self, state: GoalState) -> Evidence | None:
        if not state.contract.verify:
            return None
        if self._verify is None:
            return Evidence(None, "There is nothing here that can run it.")
        return await self._verify(state.contract.verify, vouched=state.vouched)

    async def _asked(self, state: GoalState, reply: str, evidence: Evidence | None) -> Opinion:
        if self._ask is None:
            return _unjudged("there is no model to judge it")
        try:
            text = question(state, reply, evidence, await self._store.read(self._running))
            async with asyncio.timeout(self._seconds):
                answer, usage = await self._ask(JUDGE, text, most_tokens=ANSWER_TOKENS)
        except TimeoutError:
            return _unjudged(f"the judge took longer than {self._seconds:.0f} s")
        except OverBudget:
            return Opinion(
                verdict="stop", reason="there is no money left to judge it by (see `budget` in the settings)"
            )
        except TalariaError as error:
            log.info("session %s: the judge failed: %s", self._session_id, error)
            return _unjudged("the judge could not be asked")
        except Exception:
            log.exception("session %s: the judge failed", self._session_id)
            return _unjudged("the judge failed")
        await self._store.write(lambda tx: tx.sessions.add_usage(self._session_id, usage))
        said = read_verdict(answer) or _unjudged("the judge's answer could not be read", "unreadable")
        if said.verdict == "stop" and not state.contract.stop_when:
            return structs.replace(said, verdict="continue")
        return said

    def _running(self, tx: Transaction) -> list[RunningProcess]:
        """Return what goes on in the background of the conversation, which a goal may wait for."""
        found = list_processes(tx, self._session_id)
        return [RunningProcess(process.pid, process.command) for process in found if process.is_alive and process.pid]


def _unjudged(why: str, failure: JudgeFailure = "unavailable") -> Opinion:
    return Opinion(verdict="continue", reason=f"The last turn could not be judged: {why}.", failure=failure)


def _unproved(command: str, evidence: Evidence) -> str:
    how = "did not end" if evidence.exit_code is None else f"ended with exit code {evidence.exit_code}"
    tail = " ".join(evidence.output[-_SHOWN_OUTPUT:].split())
    return f"`{command}` {how}" + (f": {tail}" if tail else ".")
