"""A gateway killed during a handoff: the next one completes it, in one chat and with one reply."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.warm_program import WarmProcess
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import GREETING, HandoffFixture, open_handoff_fixture, start_session

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
    """One run of a gateway until it is killed."""

    fixture: HandoffFixture
    server: ModelServer
    process: WarmProcess
    session_id: SessionId

    async def delayed_at(self, proposed_action: Operation, seconds: float = FOR_EVER) -> None:
        """Request the handoff, and return when the network delays this operation of the gateway."""
        self.fixture.network.disrupt(Fault(proposed_action, "delay", seconds=seconds))
        await self.request()
        await self.fixture.network.until(lambda: not self.fixture.network.faults)

    async def unconfirmed(self, proposed_action: Operation, kind: str) -> None:
        """Let the network carry the operation out without a response to the gateway."""
        await self.delayed_at(proposed_action, HELD)
        self.process.send_signal(signal.SIGSTOP)
        records = self.fixture.network.records
        await self.fixture.network.until(lambda: any(one.kind == kind for one in records))

    async def request(self) -> None:
        await self.fixture.terminal.ask(lambda tx: tx.handoffs.request_handoff(self.session_id, "loopback"))


async def home_known(moment: Moment) -> None:
    await moment.delayed_at("thread")
    assert moment.fixture.threads == []


async def thread_made_unconfirmed(moment: Moment) -> None:
    await moment.unconfirmed("thread", "thread")


async def thread_made(moment: Moment) -> None:
    await moment.delayed_at("typing")
    assert len(moment.fixture.threads) == 1


async def bound(moment: Moment) -> None:
    """Another worker has the lease of the session, so that its turn cannot start."""
    lease_name, terminal = f"session:{moment.session_id}", moment.fixture.terminal
    lease = await terminal.write(lambda tx: tx.leases.acquire(lease_name, timedelta(hours=1)))
    assert lease is not None
    await moment.request()
    assert (await terminal.until_over(moment.session_id))["state"] == "completed"
    moment.process.kill()
    await moment.process.wait()
    assert moment.server.received == []
    await terminal.write(lambda tx: tx.leases.release(lease))


async def model_called(moment: Moment) -> None:
    moment.server.script(Silence(after=0))
    await moment.request()
    async with asyncio.timeout(60):
        await moment.server.arrived(1)


async def reply_being_posted(moment: Moment) -> None:
    await moment.delayed_at("post")


async def reply_posted_unconfirmed(moment: Moment) -> None:
    await moment.unconfirmed("post", "post")


STEPS = [
    home_known, thread_made_unconfirmed, thread_made, bound, model_called, reply_being_posted, reply_posted_unconfirmed,
]  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_handoff_killed_at_any_step_ends_in_one_chat_with_one_reply(
    tmp_path: Path, server: ModelServer, engine: StoreLocation, step: Callable[[Moment], Awaitable[None]]
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here:
        await here.terminal.write(lambda tx: write_home(tx, HomeChat(HOME)))
        session_id = await here.terminal.write(start_session)
        async with worker(here.program) as process:
            await here.served()
            await step(Moment(here, server, process, session_id))
            if process.returncode is None:
                process.kill()
                await process.wait()
        here.network.disrupt()
        async with worker(here.program):
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
            (binding,) = await here.terminal.bindings(session_id)
            await here.shown(binding.address, GREETING)
            here.network.say(binding.address, "and now?", sender="ann")
            await here.shown(binding.address, GREETING, "re: and now?")
        assert len(here.network.posts) == 2
        # A thread whose creation the gateway did not see may remain, empty.
        assert len(here.threads) <= (2 if step is thread_made_unconfirmed else 1)
