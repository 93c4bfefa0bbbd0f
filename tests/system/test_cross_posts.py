"""Cross-posts with real gateways: each is delivered once, and the agent in the target chat knows it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.stored_sessions import read
from tests.system.test_gateway_process import running, shown

from talaria.core.addresses import Address
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.adapter import CHATTY
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received

GROUP = Address("loopback", "-1001", "group")
_TARGETS = {"tell bob": "loopback:bob", "tell all": "loopback:-1001"}


class SendingModel:
    """A model that sends the messages that Ann requests, and answers Bob after ``release``."""

    def __init__(self) -> None:
        self.asked_by_bob = asyncio.Event()
        self.release = asyncio.Event()

    async def answer(self, received: Received) -> Say:
        last = received.json["messages"][-1]
        if last["role"] == "tool":
            return Say("Sent." if last["content"].startswith("Sending to") else last["content"])
        command, _, text = received.question.partition(": ")
        if command in _TARGETS:
            return Say(calls=[Ask("send_message", {"target": _TARGETS[command], "text": text})])
        if received.question == "take your time":
            self.asked_by_bob.set()
            await self.release.wait()
            return Say("Here I am.")
        return Say("ok")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    """A network that recognises repeated posts, so that a kill right after sending leaves nothing in doubt."""
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=True)) as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    abilities = msgspec.json.encode(network.platform().abilities).decode()
    return scripted_program(
        tmp_path,
        server,
        '[access]\nowners = ["loopback:ann"]\nallowed = ["loopback:bob"]\n'
        '[approval]\nallowed = ["send_message loopback:bob"]\n'
        "[gateway]\nlease_seconds = 1.0\ndrain_seconds = 5.0\n"
        f"[platforms.loopback.options]\naddress = \"{network.address}\"\nabilities = '{abilities}'\n",
    )


@pytest.fixture
def model(server: ModelServer) -> SendingModel:
    model = SendingModel()
    server.answering(model.answer)
    return model


def transcript_at(program: Program, key: str) -> list[tuple[str, str]]:
    binding = read(program, lambda tx: tx.bindings.get(key))
    assert binding is not None
    stored = read(program, lambda tx: tx.messages.load(binding.session_id))
    return [(one.message.role, one.message.text) for one in stored]


def shown_to_model(server: ModelServer, question: str) -> list[tuple[str, Any]]:
    """Return the messages of the model call for a question."""
    (call,) = [one for one in server.received if one.question == question and "tools" in one.json]
    return [(one["role"], one["content"]) for one in call.json["messages"] if one["role"] != "system"]


async def test_cross_post_during_a_turn_is_known_to_the_next_turn(
    program: Program, network: LoopbackNetwork, server: ModelServer, model: SendingModel
) -> None:
    async with running(program):
        network.say("bob", "take your time", sender="bob")
        await model.asked_by_bob.wait()
        network.say("ann", "tell bob: dinner at 7")
        await shown(network, "bob", "dinner at 7")
        await shown(network, "ann", "Sent.")
        model.release.set()
        await shown(network, "bob", "dinner at 7", "Here I am.")
        network.say("bob", "when was that?", sender="bob")
        await shown(network, "bob", "dinner at 7", "Here I am.", "ok")
    assert shown_to_model(server, "when was that?") == [
        ("user", "take your time"),
        ("assistant", "Here I am."),
        ("assistant", "dinner at 7"),
        ("user", "when was that?"),
    ]


async def test_cross_post_is_recorded_once_and_in_order_after_a_kill(
    program: Program, network: LoopbackNetwork, server: ModelServer, model: SendingModel
) -> None:
    async with running(program) as process:
        network.say("bob", "take your time", sender="bob")
        await model.asked_by_bob.wait()
        network.say("ann", "tell bob: dinner at 7")
        await shown(network, "bob", "dinner at 7")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    model.release.set()
    async with running(program):
        await shown(network, "bob", "dinner at 7", "Here I am.")
        await shown(network, "ann", "Sent.")
        network.say("bob", "when was that?", sender="bob")
        await shown(network, "bob", "dinner at 7", "Here I am.", "ok")
    assert transcript_at(program, "agent:main:loopback:private:bob") == [
        ("user", "take your time"),
        ("assistant", "Here I am."),
        ("assistant", "dinner at 7"),
        ("user", "when was that?"),
        ("assistant", "ok"),
    ]


async def test_cross_posts_are_sent_and_recorded_once_whenever_the_gateway_is_killed(
    program: Program, network: LoopbackNetwork, server: ModelServer, model: SendingModel
) -> None:
    async with running(program):
        network.say("bob", "hello", sender="bob")
        await shown(network, "bob", "ok")
    moments = (0.0, 0.01, 0.03, 0.06)
    for number, moment in enumerate(moments):
        async with running(program) as process:
            before = len(server.received)
            network.say("ann", f"tell bob: message {number}")
            await server.arrived(before + 1)
            await asyncio.sleep(moment)  # real time: each kill comes a little later
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with running(program):
            await shown(network, "ann", *(["Sent."] * (number + 1)))
            await shown(network, "bob", "ok", *(f"message {one}" for one in range(number + 1)))
    recorded = transcript_at(program, "agent:main:loopback:private:bob")
    assert recorded[2:] == [("assistant", f"message {number}") for number in range(len(moments))]


async def test_message_of_a_script_to_a_group_is_known_to_the_first_turn_there(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    async with running(program):
        sent = await asyncio.to_thread(program.run, "send", "loopback:-1001", "we meet at noon", "--wait")
        assert (sent.code, sent.out) == (0, "Delivered to loopback:-1001.\n")
        assert network.shown("-1001") == ["we meet at noon"]
        network.say(GROUP, "when?", sender="bob")
        await shown(network, "-1001", "we meet at noon", "ok")
    assert shown_to_model(server, "when?") == [("assistant", "we meet at noon"), ("user", "when?")]


async def test_cross_post_to_a_group_needs_the_approval_of_the_owner(
    program: Program, network: LoopbackNetwork, server: ModelServer, model: SendingModel
) -> None:
    async with running(program):
        for choice, result in ((-1, "Not allowed: "), (0, "Sent.")):
            before = len(network.posts)
            network.say("ann", "tell all: dinner at 7")
            question = (await network.posted(before + 1))[-1]
            assert "tell all" not in question.text
            assert "loopback:-1001: dinner at 7" in question.text
            assert network.shown("-1001") == []
            network.press("ann", question.message_id, question.buttons[choice].value)
            await network.until(lambda result=result: network.shown("ann")[-1].startswith(result))  # type: ignore[misc]
        await shown(network, "-1001", "dinner at 7")


async def test_guest_cannot_make_the_agent_send_cross_posts(
    program: Program, network: LoopbackNetwork, server: ModelServer, model: SendingModel
) -> None:
    async with running(program):
        network.say("bob", "tell bob: hi", sender="bob")
        await network.until(lambda: len(network.shown("bob")) == 1)
        network.say(GROUP, "tell bob: hello", sender="bob")
        await network.until(lambda: len(network.shown("-1001")) == 1)
        assert "hi" not in network.shown("bob")
        assert "hello" not in network.shown("bob")
