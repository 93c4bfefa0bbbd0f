"""MCP servers of a session in a chat: they survive the eviction of the agent, and end with the session."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gateway.in_process_gateway import run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.core.os_processes import is_running
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import until

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network:
        yield network


def counting(received: Received) -> Say:
    """Call the counter on request, and repeat its result."""
    last = received.json["messages"][-1]
    if last["role"] == "tool":
        return Say(f"counted {last['content'].splitlines()[1]}")  # the first line marks it as untrusted
    return Say(calls=[Ask("mcp_counter_count", {})]) if received.question == "count" else Say("ok")


async def send_and_wait(network: LoopbackNetwork, chat: str, text: str) -> str:
    """Send a message and return the answer."""
    before = len(network.shown(chat))
    network.say(chat, text, sender=chat)
    await network.until(lambda: len(network.shown(chat)) > before)
    return network.shown(chat)[-1]


async def next_count(network: LoopbackNetwork, chat: str) -> tuple[int, int]:
    """Return the next number of a chat's counter, and the process that counts."""
    number, process = (await send_and_wait(network, chat, "count")).removeprefix("counted ").split(" in ")
    return int(number), int(process)


async def test_mcp_server_survives_eviction_and_model_change_and_ends_with_the_session(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    settings = (
        'owners = ["loopback:ann", "loopback:bob"]\n[gateway]\nopen_sessions = 1\n'
        f'[mcp.counter]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nconnect_timeout_seconds = 60\n'
    )
    server.answering(counting)
    async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
        first, process = await next_count(network, "ann")
        assert (first, await next_count(network, "ann")) == (1, (2, process))
        assert (await next_count(network, "bob"))[0] == 1  # evicts the agent of the other chat
        assert await next_count(network, "ann") == (3, process)
        await send_and_wait(network, "ann", "/model other")
        assert await next_count(network, "ann") == (4, process)
        assert len(gateway.chats) == 1
        await send_and_wait(network, "ann", "/new")
        await until(lambda: not is_running(process))
        assert (await next_count(network, "ann"))[0] == 1
