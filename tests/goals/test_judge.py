"""The judge of a turn: its prompt, the effect of its answers, and its failures."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.goals.goal_fixture import DONE, NOT_YET, make_judge

from talaria.contracts.background_processes import BackgroundProcess, add_process
from talaria.contracts.stores.turns import Cap
from talaria.core.ids import new_worker_id
from talaria.core.messages import Usage
from talaria.core.session_context import SessionContext
from talaria.goals.follower import Judge
from talaria.goals.goal import GoalContract, GoalState
from talaria.goals.transitions import Evidence
from talaria.runtime.turn_environment import StoredBudget
from talaria.testing.clock import NOON
from talaria.testing.model_server import Answer, Fail, Garbage, Say, Silence, Tokens
from talaria.testing.wait import LIMIT


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


def goal(text: str = "Win the game", contract: GoalContract | None = None, subgoals: tuple[str, ...] = ()) -> GoalState:
    now = datetime.now(UTC)
    return GoalState(
        id="1", goal=text, set_at=now, since=now, usage=Usage(), contract=contract or GoalContract(), subgoals=subgoals
    )


def verifying(*endings: Evidence) -> "ScriptedVerifier":
    return ScriptedVerifier(list(endings))


class ScriptedVerifier:
    """Return scripted evidence instead of running commands."""

    def __init__(self, endings: list[Evidence]) -> None:
        self._endings = endings
        self.ran: list[tuple[str, bool]] = []

    async def __call__(self, command: str, *, vouched: bool) -> Evidence:
        self.ran.append((command, vouched))
        return self._endings.pop(0)


async def test_empty_goal_or_reply_is_judged_without_a_model_call(agent_session: AgentSession) -> None:
    judge = make_judge(agent_session)
    assert (await judge.judge_turn(goal("  "), "hello")).verdict == "skipped"
    assert (await judge.judge_turn(goal(), " \n")).verdict == "continue"
    assert agent_session.server.received == []


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (DONE, "done"),
        (NOT_YET, "continue"),
        (f"I have looked at it.\n```json\n{DONE}\n```", "done"),
        ('Well: {"done": "yes", "reason": "so it is"}', "done"),
        ('{"done": "not yet", "reason": "so it is"}', "continue"),
    ],
)
async def test_a_verdict_has_a_reason(agent_session: AgentSession, answer: str, verdict: str) -> None:
    agent_session.server.script(Say(answer))
    opinion = await make_judge(agent_session).judge_turn(goal(), "I won.")
    assert opinion.verdict == verdict
    assert opinion.reason


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (Say("I would rather not say."), "couldn't be read"),
        (Say(""), "couldn't be read"),
        (Fail(400), "isn't available"),
        (Fail(401), "isn't available"),
        (Fail(500), "isn't available"),
        (Garbage(), "isn't available"),
        (Silence(after=0), "took longer than 1 s"),
    ],
)
async def test_failed_judge_means_continue(agent_session: AgentSession, answer: Answer, part: str) -> None:
    agent_session.server.otherwise(answer)
    opinion = await make_judge(agent_session, seconds=1).judge_turn(goal(), "I won.")
    assert opinion.verdict == "continue"
    assert part in opinion.reason


async def test_slow_judge_times_out_and_means_continue(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("one two three four five six seven eight", pause=0.2))
    opinion = await make_judge(agent_session, seconds=0.3).judge_turn(goal(), "I won.")
    assert (opinion.verdict, "took longer" in opinion.reason) == ("continue", True)
    async with asyncio.timeout(LIMIT):
        await agent_session.server.gone()


async def test_judge_without_a_model_means_continue(agent_session: AgentSession) -> None:
    opinion = await Judge(agent_session.session_id, agent_session.store, None).judge_turn(goal(), "I won.")
    assert (opinion.verdict, "no model" in opinion.reason) == ("continue", True)


async def test_exception_in_the_model_call_counts_as_a_failure_of_the_judge(agent_session: AgentSession) -> None:
    async def broken(instructions: str, text: str, *, max_tokens: int) -> tuple[str, Usage]:
        raise ZeroDivisionError

    opinion = await Judge(agent_session.session_id, agent_session.store, broken).judge_turn(goal(), "I won.")
    assert opinion.verdict == "continue"
    assert opinion.reason == "The last turn couldn't be judged: the judge failed."


async def test_judge_prompt_has_goal_evidence_and_processes_and_cuts_a_long_reply(agent_session: AgentSession) -> None:
    agent_session.server.script(Say(NOT_YET))
    contract = GoalContract("make test", "no new files", "src", "it needs a key")
    running = BackgroundProcess(
        id="p1",
        session_id=agent_session.session_id,
        command="make long",
        folder="/",
        files_folder="/",
        machine="m",
        host="h",
        watcher=new_worker_id(),
        begun_at=NOON,
        context=SessionContext(),
        state="running",
        pid=4242,
    )
    await agent_session.store.write(lambda tx: add_process(tx, running))
    judge = make_judge(agent_session, verify=verifying(Evidence(2, "2 failed")))
    await judge.judge_turn(goal(contract=contract, subgoals=("be quick",)), "begin " + "x" * 100_000 + " end")
    shown = agent_session.server.received[0].question
    for part in ("Win the game", "make test", "no new files", "src", "it needs a key", "be quick", "begin", "end"):
        assert part in shown
    for part in ("exit code 2", "2 failed", "4242: make long"):
        assert part in shown
    assert len(shown) < 12_000


async def test_goal_is_not_done_while_its_verify_command_fails(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(Say(DONE))
    verify = verifying(Evidence(1, "1 failed"), Evidence(None, "stopped"), Evidence(0, "all passed"))
    judge = make_judge(agent_session, verify=verify)
    proved = goal(contract=GoalContract(verify="make test"))
    failed = await judge.judge_turn(proved, "I won.")
    assert (failed.verdict, failed.exit_code) == ("continue", 1)
    assert "exit code 1: 1 failed" in failed.reason
    endless = await judge.judge_turn(proved, "I won.")
    assert (endless.verdict, endless.exit_code) == ("continue", None)
    passed = await judge.judge_turn(proved, "I won.")
    assert (passed.verdict, passed.exit_code) == ("done", 0)
    assert verify.ran == [("make test", True)] * 3


async def test_verify_command_that_cannot_run_means_continue(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(Say(DONE))
    opinion = await make_judge(agent_session).judge_turn(goal(contract=GoalContract(verify="true")), "I won.")
    assert opinion.verdict == "continue"


async def test_stop_verdict_needs_a_stop_condition(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(Say('{"verdict": "stop", "reason": "a key is needed"}'))
    assert (await make_judge(agent_session).judge_turn(goal(), "x")).verdict == "continue"
    assert (
        await make_judge(agent_session).judge_turn(goal(contract=GoalContract(stop_when="a key")), "x")
    ).verdict == "stop"


async def test_cost_of_the_judge_is_counted_and_capped(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(Say(DONE, usage=Tokens(input=1_000, output=100)))
    budget = StoredBudget(agent_session.store, [Cap("all", 38_000)])
    judge = make_judge(agent_session, budget=budget)
    judged = await judge.judge_turn(goal(), "x")
    assert judged.verdict == "done"
    assert judged.usage == Usage(calls=1, input_tokens=1_000, output_tokens=100, cost_microdollars=4_500)
    assert await agent_session.store.read(lambda tx: tx.ledger.read_spent("all")) == 4_500
    await judge.judge_turn(goal(), "x")
    opinion = await judge.judge_turn(goal(), "x")
    assert (opinion.verdict, "budget" in opinion.reason) == ("stop", True)
    assert len(agent_session.server.received) == 2
