"""A gateway that is killed again and again while people write to it: is every message answered, once and in order?"""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.measure import Figure, installed
from talaria.contracts.platform import Abilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say

NAME = "chaos"
PLAIN = Abilities(text_limit=4096, buttons=True)
IDEMPOTENT = Abilities(text_limit=4096, buttons=True, idempotent=True)
_PATIENCE = 120.0


@dataclass(frozen=True)
class Storm:
    """How much is written, in how many chats, and how often the gateway is ended, and how."""

    messages: int
    chats: int
    kills: int
    by: signal.Signals = signal.SIGKILL
    abilities: Abilities = PLAIN


@dataclass(frozen=True)
class Damage:
    """What went wrong: messages without an answer, answered twice in the transcript, out of order, posted twice."""

    missing: int
    answered_twice: int
    out_of_order: int
    posted_twice: int
    kills: int
    seconds: float


def run(quick: bool) -> list[Figure]:
    """Ride out three storms."""
    size = (200, 20, 8) if quick else (1000, 50, 20)
    figures: list[Figure] = []
    for name, by, abilities in (
        ("SIGKILL", signal.SIGKILL, PLAIN),
        ("SIGKILL, idempotent network", signal.SIGKILL, IDEMPOTENT),
        ("SIGTERM", signal.SIGTERM, PLAIN),
    ):
        storm = Storm(*size, by=by, abilities=abilities)
        with TemporaryDirectory() as folder:
            damage = asyncio.run(ride_out(storm, Path(folder), seed=len(figures)))
        allowed = damage.kills if by == signal.SIGKILL and not abilities.idempotent else 0
        what = f"{name}: {storm.messages} messages, {storm.chats} chats, {damage.kills} ends"
        figures += [
            Figure(f"{what}: missing", damage.missing, "", 0),
            Figure(f"{what}: answered twice", damage.answered_twice, "", 0),
            Figure(f"{what}: out of order", damage.out_of_order, "", 0),
            Figure(f"{what}: posted twice", damage.posted_twice, "", allowed),
        ]
    return figures


async def ride_out(storm: Storm, home: Path, *, seed: int) -> Damage:
    """Let people write while the gateway is ended at random moments and started again; return what that broke."""
    chance = random.Random(seed)
    async with ModelServer() as server, LoopbackNetwork(storm.abilities) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        environment = _prepare(home, server.url, network.address)
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_write(network, storm, chance))
            for _ in range(storm.kills):
                async with _gateway(environment) as process:
                    await asyncio.sleep(chance.uniform(0.6, 1.6))
                    process.send_signal(storm.by)
                    await process.wait()
            await writing
        async with _gateway(environment):
            wanted = storm.messages
            await network.until(lambda: len(set(_posted(network))) >= wanted, seconds=_PATIENCE)
        seconds = perf_counter() - began
    return await _damage(network, storm, home, seconds)


async def _write(network: LoopbackNetwork, storm: Storm, chance: random.Random) -> None:
    """Write everything within about the time that the kills take."""
    pause = storm.kills * 1.2 / storm.messages
    for number in range(storm.messages):
        chat = f"c{number % storm.chats}"
        network.say(chat, f"{chat} m{number // storm.chats}", sender=chat)
        await asyncio.sleep(chance.uniform(0, 2 * pause))


@asynccontextmanager
async def _gateway(environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        installed("talaria"), "gateway", "run", env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _prepare(home: Path, model: str, network: str) -> dict[str, str]:
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        "[access]\neveryone = true\n[gateway]\nlease_seconds = 1.0\n"
        f'[platforms.loopback.options]\naddress = "{network}"\n'
    )
    return {"HOME": str(home), "TALARIA_HOME": str(home), "PATH": str(Path(sys.executable).parent)}


def _posted(network: LoopbackNetwork) -> list[str]:
    return [record.text for record in network.posts]


async def _damage(network: LoopbackNetwork, storm: Storm, home: Path, seconds: float) -> Damage:
    posted = Counter(_posted(network))
    wanted = [
        [f"re: c{chat} m{number}" for number in range(len(range(chat, storm.messages, storm.chats)))]
        for chat in range(storm.chats)
    ]
    store = open_sqlite_store(home / "profiles" / "default" / "talaria.db")
    try:
        told = await store.read(_told)
    finally:
        await store.close()
    answers = Counter(answer for conversation in told for answer in conversation)
    return Damage(
        missing=sum(posted[text] == 0 or answers[text] == 0 for chat in wanted for text in chat),
        answered_twice=sum(count - 1 for count in answers.values()),
        out_of_order=sum(chat not in told for chat in wanted),
        posted_twice=sum(count - 1 for count in posted.values()),
        kills=storm.kills,
        seconds=seconds,
    )


def _told(tx: Transaction) -> list[list[str]]:
    """Return the answers of each conversation in their order."""
    sessions = tx.sessions.find(SessionFilter(limit=None))
    stored = [tx.messages.load(session.id) for session in sessions]
    return [[one.message.text for one in each if one.message.role == "assistant"] for each in stored]
