"""Short form of `python -m bench background-work`, and background tasks when a gateway ends or restarts."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bench.background_work import RestartScenario, run_restarts
from tests.app.program import Program
from tests.runtime.delegation.delegating_model import DelegatingModel, Script, delegate_tasks, model_calls_for, tools_of
from tests.system.gateway_workers import gateway_program, start_warm_gateway, worker

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres
from talaria.testing.wait import until

OWNED = 'everyone = true\nowners = ["loopback:ann"]'
# Tool calls that take more than five seconds are posted, which only happens on a busy machine.
QUIET = '[platforms.loopback]\nprogress = "off"\n'
SOON = 60.0
DONE = "This message is automatic, not from the person. Your background work reports:"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    return gateway_program(tmp_path, server, network, access=OWNED, more=QUIET)


async def test_every_session_gets_one_report_per_process_and_task(tmp_path: Path) -> None:
    scenario = RestartScenario(chats=8, kills=3)
    result = await run_restarts(scenario, tmp_path, seed=3, start=start_warm_gateway)
    assert (result.missing, result.unexpected, result.undelivered, result.unfinished) == (0, 0, 0, 0)


async def test_delegation_call_cut_off_by_a_kill_continues_with_its_child_sessions(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    script: Script = {
        "go": [delegate_tasks("quick", "slow"), Say("both")],
        "quick": Say("hare"),
        "slow": Say("tortoise"),
    }
    delegating_model = DelegatingModel(server, script, gates=("slow",))
    async with worker(program) as first:
        network.say("chat", "go", sender="ann")
        await until(lambda: {"quick", "slow"} <= set(delegating_model.tasks))
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(program):
        await until(lambda: delegating_model.tasks.count("slow") == 2)
        delegating_model.gates["slow"].set()
        await network.until(lambda: network.shown("chat") == ["both"])
    assert any("tortoise" in one.body.decode() for one in server.received if one.question == "go")
    assert delegating_model.tasks.count("quick") <= 2  # twice if the kill came before its answer was stored


async def test_background_task_is_reported_in_its_session_after_a_kill(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    script: Script = {
        "go": [delegate_tasks("slow", background=True), Say("it goes on")],
        "slow": Say("tortoise"),
        DONE: Say("told"),
    }
    delegating_model = DelegatingModel(server, script, gates=("slow",))
    async with worker(program) as first:
        network.say("chat", "go", sender="ann")
        network.say("other", "hello", sender="ann")
        await network.until(lambda: network.shown("chat") == ["it goes on"])
        await until(lambda: "slow" in delegating_model.tasks)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    delegating_model.gates["slow"].set()
    async with worker(program):
        await network.until(lambda: network.shown("chat") == ["it goes on", "told"])
    reports = [one for one in server.received if one.question.startswith(DONE)]
    assert len({one.body for one in reports}) == 1
    assert "tortoise" in reports[0].question
    assert network.shown("other") == ["ok"]


async def test_many_delegated_tasks_with_a_slow_model_do_not_delay_other_chats(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    folder = program.home / "profiles" / "default" / "config.toml"
    folder.write_text(folder.read_text() + "[delegation]\nat_once = 100\ntasks = 100\n")
    goals = [f"task {number}" for number in range(100)]
    script: Script = {"go": [delegate_tasks(*goals), Say("all done")]}
    delegating_model = DelegatingModel(server, script, gates=tuple(goals))
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await until(lambda: delegating_model.running >= len(goals))
        for number in range(5):
            network.say(f"other {number}", "hello", sender="ann")
        await network.until(lambda: all(network.shown(f"other {number}") == ["ok"] for number in range(5)))
        assert delegating_model.running >= len(goals)
        for gate in delegating_model.gates.values():
            gate.set()
        await network.until(lambda: network.shown("chat") == ["all done"])


async def test_another_worker_resumes_the_background_task_of_a_suspended_worker(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    if find_postgres() is None:
        pytest.skip(MISSING)
    script: Script = {"go": [delegate_tasks("slow", background=True), Say("it goes on")], DONE: Say("told")}
    delegating_model = DelegatingModel(server, script, gates=("slow",))
    with PostgresServer() as postgres:
        program = gateway_program(tmp_path, server, network, postgres.url, access=OWNED, more=QUIET)
        async with worker(program) as first:
            network.say("chat", "go", sender="ann")
            await network.until(lambda: network.shown("chat") == ["it goes on"])
            await until(lambda: "slow" in delegating_model.tasks)
            async with worker(program):
                await network.until(lambda: network.receivers == 2)
                first.send_signal(signal.SIGSTOP)
                await until(lambda: delegating_model.tasks.count("slow") == 2)
                delegating_model.gates["slow"].set()
                await network.until(lambda: network.shown("chat") == ["it goes on", "told"])
                first.send_signal(signal.SIGCONT)
    assert network.shown("chat") == ["it goes on", "told"]
    assert len({one.body for one in server.received if one.question.startswith(DONE)}) == 1


async def test_delegated_task_of_a_guest_has_only_the_tools_of_a_guest(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        access = f'{OWNED}\nguest_tools = ["delegate_task", "web_fetch"]'
        program = gateway_program(tmp_path, server, network, access=access, more=QUIET)
        with_model = {"goal": "dear", "model": "mine:scripted"}
        DelegatingModel(
            server, {"go": [delegate_tasks("task"), Say("done")], "choose": [delegate_tasks(with_model), Say("done")]}
        )
        async with worker(program):
            network.say("chat", "go", sender="bob")
            await network.until(lambda: network.shown("chat") == ["done"])
            network.say("chat", "choose", sender="bob")
            await network.until(lambda: network.shown("chat") == ["done", "done"])
    assert tools_of(model_calls_for(server, "task")[0]) == {"delegate_task", "web_fetch"}
    assert model_calls_for(server, "dear") == []
    assert any("You can't choose a task's model here" in one.body.decode() for one in model_calls_for(server, "choose"))


async def test_delegated_task_has_send_message_only_on_request(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    with_tool = {"goal": "given", "tools": ["send_message"]}
    DelegatingModel(server, {"go": [delegate_tasks("usual", with_tool), Say("done")]})
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await network.until(lambda: network.shown("chat") == ["done"])
    own = tools_of(model_calls_for(server, "go")[0])
    assert "send_message" in own
    assert not {"send_message", "send_file", "clarify"} & tools_of(model_calls_for(server, "usual")[0])
    assert tools_of(model_calls_for(server, "given")[0]) == {"send_message"}


async def test_stop_in_a_chat_ends_delegated_tasks(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    delegating_model = DelegatingModel(server, {"go": delegate_tasks("slow")}, gates=("slow",))
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await until(lambda: "slow" in delegating_model.tasks)
        network.say("chat", "/stop", sender="ann")
        async with asyncio.timeout(SOON):
            await server.gone()
        network.say("chat", "hello", sender="ann")
        await network.until(lambda: "ok" in network.shown("chat"))
        assert delegating_model.tasks.count("slow") == 1
