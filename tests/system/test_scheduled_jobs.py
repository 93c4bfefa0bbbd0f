"""Jobs in gateways that are processes of their own: delivered, mirrored, killed in the middle, shared by workers."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from tests.app.program import Program
from tests.app.program_with_model import talk
from tests.storage.engines import Place
from tests.system.gateway_workers import worker, workplace

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

PATIENCE = 60.0
OWNED = 'owners = ["loopback:ann"]'


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


async def told(network: LoopbackNetwork, chat: str, *parts: str) -> None:
    """Wait until each of these stands somewhere in what people see in a chat."""
    await network.until(lambda: all(any(part in one for one in network.shown(chat)) for part in parts))


async def add(program: Program, *words: str) -> str:
    """Add a job, and return what was remarked."""
    added = await talk(program, "cron", "add", *words)
    assert added.code == 0, added.err
    return added.err


async def history(program: Program, job: str) -> list[dict[str, str]]:
    done = await talk(program, "cron", "history", job, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, str]] = msgspec.json.decode(done.out)
    return found


async def ended(program: Program, job: str, count: int = 1) -> list[dict[str, str]]:
    """Wait until so many runs of a job are over, and return all of them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            runs = await history(program, job)
            if sum(run["state"] != "running" for run in runs) >= count:
                return runs


def answer(received: Received) -> Say:
    """Answer titles and jobs alike, and what people say with what came before it."""
    return Say("It rains." if "weather" in received.question.lower() else "ok")


async def test_a_job_that_is_due_in_a_second_is_delivered_and_known_there(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(answer)
    async with worker(program):
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
        await add(program, "in 1s", "Look at the weather.", "--name", "Weather")
        await told(network, "ann", "It rains.")
        runs = await ended(program, "Weather")
        assert [(run["state"], run["output"]) for run in runs] == [("done", "It rains.")]
        network.say("ann", "What did you just tell me?")
        await told(network, "ann", "ok")
    assert [record.text for record in network.posts].count("It rains.") == 1
    asked = next(one for one in server.received if "What did you just tell me?" in one.question)
    assert "It rains." in asked.body.decode()


async def test_the_agent_schedules_something_for_the_chat_it_is_asked_in(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
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
        await told(network, "ann", "I will.", "The kettle boils.")


async def test_killed_in_the_middle_of_a_run_it_is_resumed_and_reported_once(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    async with worker(program) as first:
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
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
        await told(network, "ann", "It is marked.")
        runs = await ended(program, "Marking")
    assert [(run["state"], run["output"]) for run in runs] == [("done", "It is marked.")]
    assert network.shown("ann").count("It is marked.") == 1
    assert mark.read_text() == "once\n"


async def test_killed_in_the_middle_of_a_script_that_is_not_run_again(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    mark = tmp_path / "workspaces" / "default" / "marked"  # in its sandbox, a script writes to its folder only
    async with worker(program) as first:
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
        await add(program, "in 1s", "--script", f"echo once >> {mark}; sleep 600", "--name", "Mark")
        await until(mark.exists)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    async with worker(program):
        await told(network, "ann", "interrupted")
        assert [run["state"] for run in await ended(program, "Mark")] == ["failed"]
    assert mark.read_text() == "once\n"


async def test_missed_runs_are_caught_up_and_reported_when_a_gateway_starts(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(answer)
    async with worker(program):
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
    assert "No gateway is running" in await add(program, "in 1s", "Look at the weather.", "--name", "Weather")
    async with worker(program):
        await told(network, "ann", "It rains.")


async def test_two_workers_on_one_server_run_each_due_run_once(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres_place: Place
) -> None:
    count = 12
    server.answering(lambda received: Say(f"done {received.question.split()[-1]}"))
    url = f'{postgres_place.address}"\nschema = "{postgres_place.schema}'
    program = workplace(tmp_path, server, network, url, access=OWNED)
    (tmp_path / "work").mkdir()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(worker(program))
        await stack.enter_async_context(worker(program))
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
        for number in range(count):
            await add(program, "in 2s", f"number n{number}", "--name", f"job{number}x")
            if number == count // 2:
                first.send_signal(signal.SIGKILL)
        await told(network, "ann", *(f"done n{number}" for number in range(count)))
        for number in range(count):
            assert [run["state"] for run in await ended(program, f"job{number}x")] == ["done"]
    said = [text for text in network.shown("ann") if text.startswith("done ")]
    assert set(said) == {f"done n{number}" for number in range(count)}
    assert len(said) <= count + 1  # what the killed one was posting may come again


async def test_the_heartbeat_looks_at_what_the_owner_wrote_down(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = workplace(tmp_path, server, network, access=OWNED)
    (tmp_path / "work").mkdir()
    server.answering(lambda received: Say("The parcel is there." if "parcel" in received.question else "ok"))
    async with worker(program):
        network.say("ann", "/sethome")
        await told(network, "ann", "home")
    (tmp_path / "profiles" / "default" / "HEARTBEAT.md").write_text("- [ ] Is the parcel there?\n")
    for key, value in (("heartbeat.every", "30m"), ("heartbeat.hours", "0:00-0:00")):
        assert (await talk(program, "config", "set", key, value)).code == 0
    async with worker(program):
        await told(network, "ann", "The parcel is there.")
        assert [run["state"] for run in await ended(program, "heartbeat")] == ["done"]
    assert len([one for one in server.received if "parcel" in one.question]) == 1
