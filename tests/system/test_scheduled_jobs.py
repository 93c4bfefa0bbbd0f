"""Jobs in gateway processes: delivered, mirrored, killed midway, shared by workers."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from tests.app.program import Program
from tests.app.program_with_model import talk
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import gateway_program, worker

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

PATIENCE = 60.0
OWNED = 'owners = ["loopback:ann"]'


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


async def wait_for_texts(network: LoopbackNetwork, chat: str, *parts: str) -> None:
    """Wait until a chat shows texts that contain each of these."""
    await network.until(lambda: all(any(part in one for one in network.shown(chat)) for part in parts))


async def add(program: Program, *arguments: str) -> str:
    """Add a job, and return the notices on standard error."""
    added = await talk(program, "cron", "add", *arguments)
    assert added.code == 0, added.err
    return added.err


async def history(program: Program, job: str) -> list[dict[str, str]]:
    done = await talk(program, "cron", "history", job, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, str]] = msgspec.json.decode(done.out)
    return found


async def wait_for_runs(program: Program, job: str, count: int = 1) -> list[dict[str, str]]:
    """Wait until this many runs of a job have ended, and return all of them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            runs = await history(program, job)
            if sum(run["state"] != "running" for run in runs) >= count:
                return runs


def answer(received: Received) -> Say:
    """Answer questions about the weather, and everything else with ok."""
    return Say("It rains." if "weather" in received.question.lower() else "ok")


async def test_result_of_a_due_job_is_delivered_to_the_home_chat_and_known_there(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(answer)
    async with worker(program):
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
        await add(program, "in 1s", "Look at the weather.", "--name", "Weather")
        await wait_for_texts(network, "ann", "It rains.")
        runs = await wait_for_runs(program, "Weather")
        assert [(run["state"], run["output"]) for run in runs] == [("done", "It rains.")]
        network.say("ann", "What did you just tell me?")
        await wait_for_texts(network, "ann", "ok")
    assert [record.text for record in network.posts].count("It rains.") == 1
    asked = next(one for one in server.received if "What did you just tell me?" in one.question)
    assert "It rains." in asked.body.decode()


async def test_job_added_by_the_agent_reports_to_the_chat_of_the_request(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    request = {"action": "add", "when": "in 1s", "prompt": "Tell them about the kettle.", "name": "Tea"}

    def think(received: Received) -> Say:
        if "kettle" in received.question and "Remind" not in received.question:
            return Say("The kettle boils.")
        if "Remind" in received.question and not any(one["role"] == "tool" for one in received.json["messages"]):
            return Say(calls=[Ask("cron", request)])
        return Say("I will.")

    server.answering(think)
    async with worker(program):
        network.say("ann", "Remind me of the kettle.")
        await wait_for_texts(network, "ann", "I will.", "The kettle boils.")


async def test_job_run_killed_midway_is_resumed_and_reported_once(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    async with worker(program) as first:
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
        before = len(server.received)
        mark = tmp_path / "workspaces" / "default" / "marked"
        server.script(
            Say(calls=[Ask("terminal", {"command": f"echo once >> {mark}"})]),
            Say("slow " * 500, pause=0.1),
            Say("It is marked."),
            Say("It is marked."),
        )
        await add(program, "in 1s", "Mark it.", "--name", "Marking")
        await server.arrived(before + 2)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    assert [run["state"] for run in await history(program, "Marking")] == ["running"]
    async with worker(program):
        await wait_for_texts(network, "ann", "It is marked.")
        runs = await wait_for_runs(program, "Marking")
    assert [(run["state"], run["output"]) for run in runs] == [("done", "It is marked.")]
    assert network.shown("ann").count("It is marked.") == 1
    assert mark.read_text() == "once\n"


async def test_script_of_a_job_killed_midway_is_not_run_again(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    mark = tmp_path / "workspaces" / "default" / "marked"  # in its sandbox, a script writes to its folder only
    async with worker(program) as first:
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
        await add(program, "in 1s", "--script", f"echo once >> {mark}; sleep 600", "--name", "Mark")
        await until(mark.exists)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(program):
        await wait_for_texts(network, "ann", "interrupted")
        assert [run["state"] for run in await wait_for_runs(program, "Mark")] == ["failed"]
    assert mark.read_text() == "once\n"


async def test_missed_runs_are_caught_up_and_reported_when_a_gateway_starts(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(answer)
    async with worker(program):
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
    assert "No gateway is running" in await add(program, "in 1s", "Look at the weather.", "--name", "Weather")
    async with worker(program):
        await wait_for_texts(network, "ann", "It rains.")


async def test_two_workers_on_one_database_start_each_due_run_once(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres_location: StoreLocation
) -> None:
    count = 12
    server.answering(lambda received: Say(f"done {received.question.split()[-1]}"))
    url = f'{postgres_location.address}"\nschema = "{postgres_location.schema}'
    program = gateway_program(tmp_path, server, network, url, access=OWNED)
    (tmp_path / "work").mkdir()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(worker(program))
        await stack.enter_async_context(worker(program))
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
        for number in range(count):
            await add(program, "in 2s", f"number n{number}", "--name", f"job{number}x")
            if number == count // 2:
                first.send_signal(signal.SIGKILL)
        await wait_for_texts(network, "ann", *(f"done n{number}" for number in range(count)))
        for number in range(count):
            assert [run["state"] for run in await wait_for_runs(program, f"job{number}x")] == ["done"]
    posted = [text for text in network.shown("ann") if text.startswith("done ")]
    assert set(posted) == {f"done n{number}" for number in range(count)}
    assert len(posted) <= count + 1  # the post of the killed worker may be repeated


async def test_heartbeat_checks_the_items_of_heartbeat_md(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = gateway_program(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(lambda received: Say("The parcel is there." if "parcel" in received.question else "ok"))
    async with worker(program):
        network.say("ann", "/sethome")
        await wait_for_texts(network, "ann", "home")
    (tmp_path / "profiles" / "default" / "HEARTBEAT.md").write_text("- [ ] Is the parcel there?\n")
    for key, value in (("heartbeat.every", "30m"), ("heartbeat.hours", "0:00-0:00")):
        assert (await talk(program, "config", "set", key, value)).code == 0
    async with worker(program):
        await wait_for_texts(network, "ann", "The parcel is there.")
        assert [run["state"] for run in await wait_for_runs(program, "heartbeat")] == ["done"]
    assert len([one for one in server.received if "parcel" in one.question]) == 1
