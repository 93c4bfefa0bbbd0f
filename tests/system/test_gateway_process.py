"""`talaria gateway` as a separate process, with a chat network and a scripted model behind sockets."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.app.warm_program import WarmProcess

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT, until


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


@asynccontextmanager
async def running(program: Program, *arguments: str) -> AsyncIterator[WarmProcess]:
    process = await warm_program.start("gateway", "run", *arguments, env=program.environment())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            async with asyncio.timeout(LIMIT):
                await process.wait()


async def shown(network: LoopbackNetwork, chat: str, *texts: str) -> None:
    """Wait until a chat shows exactly these texts, in this order."""
    try:
        await until(lambda: network.shown(chat) == list(texts))
    except TimeoutError:
        assert network.shown(chat) == list(texts)


async def test_message_is_answered_in_its_chat(program: Program, network: LoopbackNetwork, server: ModelServer) -> None:
    server.script(Say("Hello Ann."))
    async with running(program) as process:
        network.say("ann", "hello")
        await shown(network, "ann", "Hello Ann.")
        process.terminate()
        assert await process.wait() == 0


async def test_message_delivered_three_times_is_answered_once(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    async with running(program):
        network.say("ann", "hello", deliveries=3)
        network.say("ann", "again")
        await shown(network, "ann", "ok", "ok")


async def test_long_reply_is_streamed_in_one_post_and_ends_as_the_exact_text(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    text = " ".join(f"word{number}" for number in range(60))
    server.script(Say(text, pause=0.05))
    async with running(program):
        network.say("ann", "tell me a lot")
        await shown(network, "ann", text)
    kinds = [record.kind for record in network.records]
    assert kinds.count("post") == 1
    assert "edit" in kinds
    assert "typing" in kinds


async def test_stranger_gets_a_pairing_code_and_is_answered_after_approval(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    async with running(program):
        network.say("eve", "let me in", sender="eve")
        await until(lambda: network.shown("eve"))
        code = network.shown("eve")[0].split("`")[1]
        approved = await asyncio.to_thread(program.run, "pairing", "approve", "loopback", code)
        assert approved.code == 0
        await until(lambda: len(network.shown("eve")) >= 2)
        assert network.shown("eve")[1] == "You've been approved. I'll answer you here from now on."
        network.say("eve", "and now?", sender="eve")
        await until(lambda: len(network.shown("eve")) >= 3)
        assert network.shown("eve")[2] == "ok"
    assert [call.question for call in server.received if "title" not in call.body.decode()] == ["and now?"]


async def test_commands_work_in_chats(program: Program, network: LoopbackNetwork) -> None:
    async with running(program):
        network.say("ann", "/title Harbour")
        await shown(network, "ann", "This conversation's title is now *Harbour*.")
        network.say("bob", "/config", sender="bob")
        await shown(network, "bob", "Only the owner of this agent can use `/config`.")


async def test_turn_of_a_killed_gateway_is_resumed(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    server.script(Say(calls=[Ask("list_files", {})]), Say("slow " * 100, pause=0.1))
    async with running(program) as process:
        network.say("ann", "look around")
        await server.arrived(2)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    server.script(Say("All done."))
    async with running(program):
        await shown(network, "ann", "All done.")


async def test_approval_is_asked_with_buttons_that_work_only_for_the_sender(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "echo true | sh && touch done"})]), Say("It is done."))
    async with running(program):
        network.say("ann", "clean up")
        await until(lambda: network.posts)
        question = network.posts[0]
        assert question.buttons[0].label == "Yes, this once"
        network.press("ann", question.message_id, question.buttons[0].value, sender="bob")
        network.press("ann", question.message_id, question.buttons[0].value, sender="ann")
        await until(lambda: "It is done." in network.shown("ann"))


async def test_status_reports_a_running_gateway_and_a_second_one_is_refused(
    program: Program, network: LoopbackNetwork
) -> None:
    assert (await asyncio.to_thread(program.run, "gateway", "status")).code == 1
    async with running(program):
        network.say("ann", "hello")
        await shown(network, "ann", "ok")
        async with asyncio.timeout(LIMIT):
            while "connected" not in (await asyncio.to_thread(program.run, "gateway", "status")).out:
                continue
        second = await asyncio.to_thread(program.run, "gateway", "run")
        assert (second.code, "--worker" in second.err) == (1, True)
        assert (await asyncio.to_thread(program.run, "gateway", "stop")).code == 0
    assert (await asyncio.to_thread(program.run, "gateway", "status")).code == 1
