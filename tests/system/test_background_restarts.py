"""Short form of `python -m bench background-work`, and background tasks when a gateway ends or restarts."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bench.background_work import RestartScenario, run_restarts
from tests.app.program import Program
from tests.runtime.delegation.delegating_model import Company, Script, asked_for, hand_on, tools_of
from tests.system.gateway_workers import start_warm_gateway, worker, workplace

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres
from talaria.testing.wait import until

OWNED = 'everyone = true\nowners = ["loopback:ann"]'
SOON = 60.0
DONE = "This message is automatic, not from the person. Your background work reports:"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    return workplace(tmp_path, server, network, access=OWNED)


async def test_every_session_gets_one_report_per_process_and_task(tmp_path: Path) -> None:
    scenario = RestartScenario(chats=8, kills=3)
    result = await run_restarts(scenario, tmp_path, seed=3, start=start_warm_gateway)
    assert (result.missing, result.unexpected, result.undelivered, result.unfinished) == (0, 0, 0, 0)


async def test_delegation_call_cut_off_by_a_kill_continues_with_its_child_sessions(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    script: Script = {"go": [hand_on("quick", "slow"), Say("both")], "quick": Say("hare"), "slow": Say("tortoise")}
    company = Company(server, script, gates=("slow",))
    async with worker(program) as first:
        network.say("chat", "go", sender="ann")
        await until(lambda: {"quick", "slow"} <= set(company.asked))
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(program):
        await until(lambda: company.asked.count("slow") == 2)
        company.gates["slow"].set()
        await network.until(lambda: network.shown("chat") == ["both"])
    assert any("tortoise" in one.body.decode() for one in server.received if one.question == "go")
    assert company.asked.count("quick") <= 2  # twice if the kill came before its answer was stored


async def test_background_task_is_reported_in_its_session_after_a_kill(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    script: Script = {
        "go": [hand_on("slow", background=True), Say("it goes on")],
        "slow": Say("tortoise"),
        DONE: Say("told"),
    }
    company = Company(server, script, gates=("slow",))
    async with worker(program) as first:
        network.say("chat", "go", sender="ann")
        network.say("other", "hello", sender="ann")
        await network.until(lambda: network.shown("chat") == ["it goes on"])
        await until(lambda: "slow" in company.asked)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    company.gates["slow"].set()
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
    script: Script = {"go": [hand_on(*goals), Say("all done")]}
    company = Company(server, script, gates=tuple(goals))
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await until(lambda: company.at_work >= len(goals))
        for number in range(5):
            network.say(f"other {number}", "hello", sender="ann")
        await network.until(lambda: all(network.shown(f"other {number}") == ["ok"] for number in range(5)))
        assert company.at_work >= len(goals)
        for gate in company.gates.values():
            gate.set()
        await network.until(lambda: network.shown("chat")[-1:] == ["all done"])  # after progress of slow calls


async def test_another_worker_resumes_the_background_task_of_a_suspended_worker(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    if find_postgres() is None:
        pytest.skip(MISSING)
    script: Script = {"go": [hand_on("slow", background=True), Say("it goes on")], DONE: Say("told")}
    company = Company(server, script, gates=("slow",))
    with PostgresServer() as postgres:
        program = workplace(tmp_path, server, network, postgres.url, access=OWNED)
        async with worker(program) as first:
            network.say("chat", "go", sender="ann")
            await network.until(lambda: network.shown("chat") == ["it goes on"])
            await until(lambda: "slow" in company.asked)
            async with worker(program):
                await network.until(lambda: network.receivers == 2)
                first.send_signal(signal.SIGSTOP)
                await until(lambda: company.asked.count("slow") == 2)
                company.gates["slow"].set()
                await network.until(lambda: network.shown("chat") == ["it goes on", "told"])
                first.send_signal(signal.SIGCONT)
    assert network.shown("chat") == ["it goes on", "told"]
    assert len({one.body for one in server.received if one.question.startswith(DONE)}) == 1


async def test_delegated_task_of_a_guest_has_only_the_tools_of_a_guest(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        access = f'{OWNED}\nguest_tools = ["delegate_task", "web_fetch"]'
        program = workplace(tmp_path, server, network, access=access)
        with_model = {"goal": "dear", "model": "mine:scripted"}
        Company(server, {"go": [hand_on("task"), Say("done")], "choose": [hand_on(with_model), Say("done")]})
        async with worker(program):
            network.say("chat", "go", sender="bob")
            await network.until(lambda: network.shown("chat") == ["done"])
            network.say("chat", "choose", sender="bob")
            await network.until(lambda: network.shown("chat") == ["done", "done"])
    assert tools_of(asked_for(server, "task")[0]) == {"delegate_task", "web_fetch"}
    assert asked_for(server, "dear") == []
    assert any("You can't choose a task's model here" in one.body.decode() for one in asked_for(server, "choose"))


async def test_delegated_task_has_send_message_only_on_request(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    with_tool = {"goal": "given", "tools": ["send_message"]}
    Company(server, {"go": [hand_on("usual", with_tool), Say("done")]})
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await network.until(lambda: network.shown("chat") == ["done"])
    own = tools_of(asked_for(server, "go")[0])
    assert "send_message" in own
    assert not {"send_message", "send_file", "clarify"} & tools_of(asked_for(server, "usual")[0])
    assert tools_of(asked_for(server, "given")[0]) == {"send_message"}


async def test_stop_in_a_chat_ends_delegated_tasks(
    program: Program, server: ModelServer, network: LoopbackNetwork
) -> None:
    company = Company(server, {"go": hand_on("slow")}, gates=("slow",))
    async with worker(program):
        network.say("chat", "go", sender="ann")
        await until(lambda: "slow" in company.asked)
        network.say("chat", "/stop", sender="ann")
        async with asyncio.timeout(SOON):
            await server.gone()
        network.say("chat", "hello", sender="ann")
        await network.until(lambda: "ok" in network.shown("chat"))
        assert company.asked.count("slow") == 1
