"""A group with a session of the owner, and a model that obeys everyone in it.

The model runs every `RUN word` of the current turn with the tool `terminal`, which guests may not use: a word that was
run proves which rights its text had.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.providers.base.outgoing import NO_ANSWER
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

BOSS, GUEST = "boss", "gus"
GROUP = Address("loopback", "club", "group")
SECONDS = 60.0
NETWORK = PlatformCapabilities(text_limit=4096, edits=True, buttons=True, idempotent=True, file_limit=1_000_000)


def texts_of_turn(request: Any) -> list[str]:
    """Return the texts of people in the current turn: those after the last reply that called no tool."""
    messages = [one for one in request["messages"] if one["content"] != NO_ANSWER]
    replies = [n for n, one in enumerate(messages) if one["role"] == "assistant" and not one.get("tool_calls")]
    return [str(one["content"]) for one in messages[max(replies, default=0) :] if one["role"] == "user"]


@dataclass(kw_only=True)
class SharedGroup:
    """``folder`` has a file for each word that was run; `HOLD` keeps a turn running until ``released``."""

    network: LoopbackNetwork
    server: ModelServer
    store: Store
    folder: Path
    held: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    session_id: SessionId = field(init=False)

    async def obey(self, received: Received) -> Say:
        """Call the tools that the texts of the current turn request, each once."""
        requested, known = " ".join(texts_of_turn(received.json)), received.body.decode()
        if "HOLD" in requested and not self.released.is_set():
            self.held.set()
            await self.released.wait()
            return Say(calls=[Ask("list_files", {})])
        for word in re.findall(r"RUN (\w+)", requested):
            if f"touch {self.folder}/{word}" not in known:
                return Say(calls=[Ask("terminal", {"command": f"touch {self.folder}/{word}"})])
        return Say(f"answered {' + '.join(texts_of_turn(received.json))}")

    def ran(self, word: str) -> bool:
        """Return whether a command with this word was run."""
        return (self.folder / word).exists()

    def say(self, person: str, text: str, where: Address = GROUP) -> str:
        """Send a message of a person."""
        return self.network.say(where, text, sender=person)

    async def hold(self, person: str = BOSS) -> None:
        """Start a turn of this person, and wait until it calls the model."""
        self.say(person, "HOLD")
        async with asyncio.timeout(SECONDS):
            await self.held.wait()

    async def answered(self, *texts: str) -> None:
        """Wait for replies that contain these texts."""
        await self.network.until(lambda: all(map(self._is_answered, texts)))

    async def posted(self, text: str) -> None:
        """Wait until a text is posted."""
        await self.network.until(lambda: any(text in one.text for one in self.network.posts))

    async def pending(self, text: str) -> None:
        """Wait until a text is pending in the inbox of the session."""
        await self.eventually(
            lambda tx: any(
                text in one.payload for one in tx.inbox.list_unsettled(self.session_id) if one.state == "waiting"
            )
        )

    async def eventually(self, holds: Callable[[Transaction], bool]) -> None:
        """Wait until a condition of the store holds."""
        await until(lambda: self.store.read(holds))

    def _is_answered(self, word: str) -> bool:
        return any("answered" in one.text and word in one.text for one in self.network.posts)

    def share_a_turn(self, one: str, other: str) -> bool:
        """Return whether two texts were ever in the same turn."""
        turns = [" ".join(texts_of_turn(received.json)) for received in self.server.received]
        return any(one in turn and other in turn for turn in turns)

    async def move_session_to_group(self) -> None:
        """Let the owner start a session in a private chat and move it to the group."""
        self.say(BOSS, "hello", Address("loopback", "dm"))
        await self.network.until(lambda: bool(self.network.posts))
        found = await self.store.read(lambda tx: tx.sessions.find(SessionFilter(limit=1)))
        self.session_id = found[0].id
        self.server.answering(self.obey)
        self.say(BOSS, f"/resume {self.session_id}")
        await self.eventually(lambda tx: _is_in_group(tx, self.session_id))


@dataclass(kw_only=True)
class ServedGroup(SharedGroup):
    """The group with a gateway in this process."""

    gateway: InProcessGateway


def group_settings(busy: str, mode: str) -> str:
    """Return lines for config.toml that begin in the section of access."""
    return (
        f'owners = ["loopback:{BOSS}"]\n[approval]\nmode = "{mode}"\n[gateway]\nbusy = "{busy}"\n'
        "[platforms.loopback]\ngroup_sessions_per_user = false\nstreaming = false\n"
    )


@asynccontextmanager
async def serve_group(home: Path, *, busy: str = "queue", mode: str = "off") -> AsyncIterator[ServedGroup]:
    """Serve the group while the block runs."""
    folder = home / "ran"
    folder.mkdir()
    async with (
        ModelServer() as server,
        LoopbackNetwork(NETWORK) as network,
        run_gateway(home, network.platform(), server.url, settings=group_settings(busy, mode)) as gateway,
    ):
        here = ServedGroup(
            network=network, server=server, store=gateway.application.store, folder=folder, gateway=gateway
        )
        await here.move_session_to_group()
        yield here
        here.released.set()


def _is_in_group(tx: Transaction, session_id: SessionId) -> bool:
    return [one.address.chat_id for one in tx.bindings.of_session(session_id)] == [GROUP.chat_id]
