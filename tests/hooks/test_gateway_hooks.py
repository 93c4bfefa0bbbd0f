"""Hooks of a gateway process: they get every event, and nothing waits for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.hooks.hook_folders import notes, wait_for_notes, write_hook
from tests.system.test_gateway_process import running, shown

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import LIMIT, until

SLOW = """\
import time
from pathlib import Path

def handle(event, facts):
    here = Path(__file__).parent
    with (here / "begun").open("a") as begun:
        begun.write(event + "\\n")
    time.sleep(60)
    with (here / "done").open("a") as done:
        done.write(event + "\\n")
"""
HOME = "This chat is now my home chat on Loopback. Reports go here, and so does `/handoff loopback`"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    return scripted_program(
        tmp_path,
        server,
        '[access]\nowners = ["loopback:ann"]\nallowed = ["loopback:bob"]\n'
        "[gateway]\nlease_seconds = 1.0\ndrain_seconds = 5.0\n"
        f'[platforms.loopback.options]\naddress = "{network.address}"\n',
    )


@pytest.fixture
def profile(program: Program) -> Path:
    return program.home / "profiles" / "default"


async def test_slow_hook_delays_no_reply_no_command_and_no_shutdown(
    program: Program, profile: Path, network: LoopbackNetwork, server: ModelServer
) -> None:
    folder = write_hook(profile / "hooks", "slow", handler=SLOW)
    quick = write_hook(profile / "hooks", "quick", "events: agent:end\n")
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with running(program) as process:
        for number in range(3):
            network.say("ann", f"m{number}")
            network.say("bob", f"m{number}", sender="bob")
        await shown(network, "ann", "re: m0", "re: m1", "re: m2")
        await shown(network, "bob", "re: m0", "re: m1", "re: m2")
        network.say("ann", "/title Harbour")
        await shown(network, "ann", "re: m0", "re: m1", "re: m2", "This conversation's title is now *Harbour*.")
        assert len(await wait_for_notes(quick, "agent:end", times=6)) == 6
        # At a minute for each of these, the first reply would have come after several minutes.
        assert (folder / "begun").read_text().startswith("gateway:start\n")
        assert "agent:end" not in (folder / "begun").read_text()
        process.terminate()
        assert await process.wait() == 0
    log = (profile / "logs" / "talaria.log").read_text()
    assert "hook slow: the program stops before" in log


async def test_hooks_of_a_gateway_get_all_events_with_their_facts(
    program: Program, profile: Path, network: LoopbackNetwork, server: ModelServer
) -> None:
    folder = write_hook(profile / "hooks", "notes")
    broken = write_hook(profile / "hooks", "broken", handler="def handle(event, facts:\n")
    write_hook(profile / "hooks", "fails", handler="def handle(event, facts):\n    raise KeyError(event)\n")
    async with running(program):
        network.say("ann", "hello")
        await shown(network, "ann", "ok")
        network.say("ann", "/new")
        (reset,) = await wait_for_notes(folder, "session:reset")
    events = [event for event, _ in notes(folder)]
    assert events == [
        "gateway:start",
        "session:start",
        "agent:start",
        "agent:step",
        "agent:end",
        "command:new",
        "session:start",
        "session:end",
        "session:reset",
    ]
    facts = [facts for _, facts in notes(folder)]
    assert (facts[0]["platforms"], facts[0]["profile"]) == ("loopback", "default")
    for one in facts[1:]:
        assert (one["platform"], one["chat_id"]) == ("loopback", "ann")
    assert [one["user_id"] for one in facts[1:6]] == ["ann"] * 5
    assert (facts[2]["text"], facts[4]["text"]) == ("hello", "ok")
    assert facts[1]["session_id"] == facts[4]["session_id"] == reset["previous_session_id"]
    log = (profile / "logs" / "talaria.log").read_text()
    assert f"{broken / 'handler.py'}, line 1:" in log
    assert "hook fails: agent:end: KeyError: 'agent:end' (handler.py, line 2)" in log


async def test_boot_md_runs_once_per_gateway_start(
    program: Program, profile: Path, network: LoopbackNetwork, server: ModelServer
) -> None:
    server.answering(lambda received: Say("Good morning." if "BOOT" in received.question else "ok"))
    async with running(program):
        network.say("ann", "/sethome")
        await until(lambda: network.shown("ann"))
    (home,) = network.shown("ann")
    assert home.startswith(HOME)
    (profile / "BOOT.md").write_text("BOOT: say good morning.\n")
    async with running(program):
        await shown(network, "ann", home, "Good morning.")
        async with running(program, "--worker"):
            await workers(program, 2)
    async with running(program):
        await shown(network, "ann", home, "Good morning.", "Good morning.")
    assert len([call for call in server.received if "BOOT: say" in call.question]) == 2


async def test_boot_md_runs_in_only_one_of_several_workers(
    program: Program, profile: Path, network: LoopbackNetwork, server: ModelServer
) -> None:
    server.answering(lambda received: Say("[SILENT]" if "BOOT: look" in received.question else "Hello, Ann."))
    (profile / "BOOT.md").write_text("BOOT: look around.\n")
    async with running(program, "--worker"), running(program, "--worker"), running(program, "--worker"):
        await workers(program, 3)
        await server.arrived(1)
        network.say("ann", "hello")
        await shown(network, "ann", "Hello, Ann.")
    assert len([call for call in server.received if "BOOT: look" in call.question]) == 1


async def workers(program: Program, count: int) -> None:
    """Wait until ``count`` gateway processes serve."""
    async with asyncio.timeout(LIMIT):
        while (await asyncio.to_thread(program.run, "gateway", "status", "--json")).out.count('"pid"') < count:
            continue


async def test_slow_boot_turn_delays_no_reply_and_no_shutdown(
    program: Program, profile: Path, network: LoopbackNetwork, server: ModelServer
) -> None:
    slow = Say("slow " * 1000, pause=0.2)
    server.answering(lambda received: slow if "BOOT" in received.question else Say("Here I am."))
    (profile / "BOOT.md").write_text("BOOT: think for long.\n")
    async with running(program) as process:
        await server.arrived(1)
        network.say("ann", "hello")
        await shown(network, "ann", "Here I am.")
        process.terminate()
        assert await process.wait() == 0
