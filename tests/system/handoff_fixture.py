"""Parts of a handoff: the requester, the gateways, the target network, and their store."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.app.program import Program
from tests.cli.chat.chat_screen import say_until
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import LEASE, gateway_program

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Binding, HandoffState, NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, ToolCall, ToolResult
from talaria.handoff.service import HANDOFFS
from talaria.runtime.workers import STORE_UNREACHABLE
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import NOON
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.screen import Screen
from talaria.testing.wait import until

T = TypeVar("T")
OWNED = 'owners = ["loopback:ann"]'
THREADS = PlatformCapabilities(text_limit=4096, threads=True, typing=True, idempotent=True)
PLAIN = PlatformCapabilities(text_limit=4096, idempotent=True)
MOVED_NOTICE = "They have moved this conversation"
GREETING = "We were at the second plank."
_SECONDS = 120


def answer(received: Received) -> Say:
    """Greet in the target chat after a handoff, and repeat messages of people."""
    return Say(GREETING) if MOVED_NOTICE in received.question else Say(f"re: {received.question}")


class Terminal:
    """The store, as the requester of a handoff has it open."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self.store.write(work)

    async def ask(self, work: Callable[[Transaction], T]) -> T:
        """Write, and notify the gateways."""

        def work_and_notify(tx: Transaction) -> T:
            tx.notify(HANDOFFS)
            return work(tx)

        return await self.store.write(work_and_notify)

    async def state(self, session_id: SessionId) -> HandoffState:
        found = await self.store.read(lambda tx: tx.handoffs.get_handoff_state(session_id))
        assert found is not None
        return found

    async def bindings(self, session_id: SessionId) -> list[Binding]:
        return await self.store.read(lambda tx: tx.bindings.of_session(session_id))

    async def until_over(self, session_id: SessionId) -> HandoffState:
        async def is_over() -> bool:
            return (await self.state(session_id))["state"] not in ("pending", "running")

        await until(is_over)
        return await self.state(session_id)

    async def until_running(self, session_id: SessionId) -> None:
        async def is_running() -> bool:
            return (await self.state(session_id))["state"] == "running"

        await until(is_running)


@dataclass(frozen=True)
class HandoffFixture:
    """A network, a program whose gateways serve it, and a terminal on the same store."""

    network: LoopbackNetwork
    program: Program
    terminal: Terminal

    async def served(self, count: int = 1) -> None:
        """Wait until this many gateways receive messages."""
        await self.network.until(lambda: self.network.receivers == count, seconds=_SECONDS)

    async def shown(self, address: Address, *texts: str) -> None:
        """Wait until a chat shows this many texts, and check that they are these."""
        await self.network.until(lambda: len(self.seen(address)) >= len(texts), seconds=_SECONDS)
        assert self.seen(address) == list(texts)

    def seen(self, address: Address) -> list[str]:
        """The replies in a chat. On an overloaded machine the notice of a slow store may come before them."""
        shown = self.network.shown(address.chat_id, address.thread_id)
        return [text for text in shown if text != STORE_UNREACHABLE]

    @property
    def threads(self) -> list[str]:
        """The chats in which a thread was made, in this order."""
        return [record.address.chat_id for record in self.network.records if record.kind == "thread"]


@asynccontextmanager
async def open_handoff_fixture(
    home: Path, server: ModelServer, engine: StoreLocation, abilities: PlatformCapabilities = THREADS, more: str = ""
) -> AsyncIterator[HandoffFixture]:
    """Prepare everything but the gateways, with ``more`` settings; the model answers as `answer` does."""
    server.answering(answer)
    store = f'[store]\nurl = "{engine.address}"\nschema = "{engine.schema}"\n' if engine.schema else ""
    async with LoopbackNetwork(abilities) as network:
        program = gateway_program(home, server, network, access=OWNED, more=store + more)
        settings = home / "profiles" / "default" / "config.toml"
        usual = settings.read_text().replace(f"lease_seconds = {LEASE}", "lease_seconds = 15.0")
        settings.write_text(f"{usual}patience = '{_SECONDS}'\n")  # an option of the network, whose table is the last
        opened = engine.open_store(SystemClock(), "terminal")
        try:
            yield HandoffFixture(network, program, Terminal(opened))
        finally:
            await opened.close()


async def hand_off_from_terminal(screen: Screen, platform: str) -> None:
    """Hand the session off, and wait until the program exits."""
    await say_until(screen, f"/handoff {platform}", lambda: screen.process.exit_code is not None)
    assert screen.process.exit_code == 0
    assert "Resume this conversation with" not in screen.text


def start_session(tx: Transaction, title: str = "The boat") -> SessionId:
    """Create a terminal session with a tool call in it."""
    session_id = tx.sessions.create(NewSession(source="cli", title=title)).id
    call = ToolCall("c1", "list_files", "{}")
    tx.messages.append(
        session_id,
        [
            Message(role="user", parts=(Text("Build a boat."),), at=NOON),
            Message(role="assistant", parts=(Text("I look first."), call), at=NOON),
            Message(role="tool", parts=(ToolResult("c1", "two planks"),), at=NOON),
            Message(role="assistant", parts=(Text("There are two planks."),), at=NOON),
        ],
    )
    return session_id


def request_home_handoff(tx: Transaction, home: Address, title: str = "The boat") -> SessionId:
    """Create a session and request its handoff to a home chat."""
    write_home(tx, HomeChat(home, "home"))
    session_id = start_session(tx, title)
    assert tx.handoffs.request_handoff(session_id, home.platform)
    return session_id
