"""A gateway killed during a handoff: the next one completes it, in one chat and with one reply."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.warm_program import WarmProcess
from tests.storage.engines import Place
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import GREETING, Scene, begun, scene

from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.loopback_platform.wire import Fault, Operation
from talaria.testing.model_server import ModelServer, Silence

HOME = Address("loopback", "ann")
FOR_EVER = 3600.0
HELD = 1.0


@dataclass(frozen=True)
class Moment:
    """One run of a gateway up to the moment of its death."""

    scene: Scene
    server: ModelServer
    process: WarmProcess
    session_id: SessionId

    async def held_at(self, proposed_action: Operation, seconds: float = FOR_EVER) -> None:
        """Ask for the move, and come back when the network holds the gateway up with this."""
        self.scene.network.disrupt(Fault(proposed_action, "delay", seconds=seconds))
        await self.request()
        await self.scene.network.until(lambda: not self.scene.network.faults)

    async def unheard(self, proposed_action: Operation, kind: str) -> None:
        """The same, but the network does it, and the gateway does not hear of that."""
        await self.held_at(proposed_action, HELD)
        self.process.send_signal(signal.SIGSTOP)
        records = self.scene.network.records
        await self.scene.network.until(lambda: any(one.kind == kind for one in records))

    async def request(self) -> None:
        await self.scene.terminal.ask(lambda tx: tx.handoffs.request_handoff(self.session_id, "loopback"))


async def home_known(moment: Moment) -> None:
    await moment.held_at("thread")
    assert moment.scene.threads == []


async def thread_made_unheard(moment: Moment) -> None:
    await moment.unheard("thread", "thread")


async def thread_made(moment: Moment) -> None:
    await moment.held_at("typing")
    assert len(moment.scene.threads) == 1


async def bound(moment: Moment) -> None:
    """Somebody else has the lane of the conversation, so that its turn cannot begin."""
    lane, terminal = f"session:{moment.session_id}", moment.scene.terminal
    lease = await terminal.write(lambda tx: tx.leases.acquire(lane, timedelta(hours=1)))
    assert lease is not None
    await moment.request()
    assert (await terminal.until_over(moment.session_id))["state"] == "completed"
    moment.process.kill()
    await moment.process.wait()
    assert moment.server.received == []
    await terminal.write(lambda tx: tx.leases.release(lease))


async def model_asked(moment: Moment) -> None:
    moment.server.script(Silence(after=0))
    await moment.request()
    async with asyncio.timeout(60):
        await moment.server.arrived(1)


async def reply_on_its_way(moment: Moment) -> None:
    await moment.held_at("post")


async def reply_posted_unheard(moment: Moment) -> None:
    await moment.unheard("post", "post")


STEPS = [
    home_known, thread_made_unheard, thread_made, bound, model_asked, reply_on_its_way, reply_posted_unheard,
]  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_killed_at_any_step_it_ends_in_one_place_with_one_reply(
    tmp_path: Path, server: ModelServer, engine: Place, step: Callable[[Moment], Awaitable[None]]
) -> None:
    async with scene(tmp_path, server, engine) as here:
        await here.terminal.write(lambda tx: write_home(tx, HomeChat(HOME)))
        session_id = await here.terminal.write(begun)
        async with worker(here.program) as process:
            await here.served()
            await step(Moment(here, server, process, session_id))
            if process.returncode is None:
                process.kill()
                await process.wait()
        here.network.disrupt()
        async with worker(here.program):
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
            (binding,) = await here.terminal.places(session_id)
            await here.shown(binding.address, GREETING)
            here.network.say(binding.address, "and now?", sender="ann")
            await here.shown(binding.address, GREETING, "re: and now?")
        assert len(here.network.posts) == 2
        # One that nobody heard of may stay behind, empty.
        assert len(here.threads) <= (2 if step is thread_made_unheard else 1)
