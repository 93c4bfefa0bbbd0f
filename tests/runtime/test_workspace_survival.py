"""Workspace state that survives eviction (folder, variables, processes) and ends when the session is closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tests.commands.command_fixture import Desk, open_desk
from tests.tools.process.process_fixture import sleeping

from talaria.contracts.background_processes import BackgroundProcess
from talaria.core.addresses import Address
from talaria.core.os_processes import is_running, kill_tree
from talaria.runtime.active_session import ActiveSession
from talaria.runtime.agent_cache import AgentCache
from talaria.testing.clock import NOON
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until


class OpenAgent:
    """Implements `CachedAgent` for an active session, as the gateway caches it."""

    def __init__(self, active_session: ActiveSession) -> None:
        self.active_session = active_session
        self.active_at: datetime | None = NOON
        self.signature = "s"

    @property
    def is_busy(self) -> bool:
        return self.active_session.busy

    async def release_clients(self) -> None:
        await self.active_session.release()

    async def close(self) -> None:
        self.active_session.chat.end_background_work()
        await self.active_session.close()


@asynccontextmanager
async def chat_with_a_process(home: Path) -> AsyncIterator[tuple[Desk, ModelServer, BackgroundProcess]]:
    """Open a chat with its own folder, a variable and a background process."""
    async with (
        ModelServer() as server,
        open_desk(home, server, chat=Address("telegram", "7"), key="k:7") as desk,
        AsyncExitStack() as stack,
    ):
        desk.application.processes.attend(desk.active_session.jobs, stack)  # as a gateway does for all sessions
        change_folder = "mkdir sub && cd sub && export MY_TOKEN=hush"
        server.script(Say(calls=[Ask("terminal", {"command": change_folder})]), Say("moved"))
        await desk.say("go there")
        process = await sleeping(desk.application.processes, desk.active_session.session_id)
        yield desk, server, process
        kill_tree(process.pid)


def is_alive(process: BackgroundProcess) -> bool:
    return is_running(process.pid)


async def until_ended(process: BackgroundProcess) -> bool:
    """Wait until the process tree is gone, which takes a moment after the kill."""
    await until(lambda: not is_alive(process))
    return True


async def test_folder_variables_and_processes_survive_eviction_of_the_agent(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (desk, server, process), asyncio.TaskGroup() as jobs:
        cache: AgentCache[OpenAgent] = AgentCache(jobs)

        async def build() -> OpenAgent:
            if not desk.active_session.is_open:
                await desk.active_session.open()
            return OpenAgent(desk.active_session)

        session_id = desk.active_session.session_id
        first = await cache.get("k:7", "same", build)
        before = first.active_session.chat
        cache.evict("k:7")
        await until(lambda: not desk.active_session.is_open)
        assert is_alive(process)
        await cache.get("k:7", "same", build)
        assert desk.active_session.session_id == session_id
        assert desk.active_session.chat is not before
        assert [one.id for one in await desk.application.processes.of_session(session_id)] == [process.id]
        server.script(Say(calls=[Ask("terminal", {"command": 'echo "$PWD $MY_TOKEN"'})]), Say("there"))
        await desk.say("where are you?")
        answers = [text for role, text in await desk.transcript() if role == "tool"]
        assert answers[-1].startswith(f"{desk.active_session.request.surface.folder}/sub hush\n")
        prompts = [request.json["messages"][0] for request in server.received]
        assert all(one == other for one, other in pairwise(prompts))
        cache.end("k:7")
    assert await until_ended(process)


async def test_reset_ends_the_processes_and_workspace_of_the_session(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (desk, _, process):
        session_id = desk.active_session.session_id
        await desk.active_session.reset_session()
        assert await until_ended(process)
        assert desk.application.workspaces.find(session_id) is None


async def test_renewed_agent_leaves_processes_running(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (desk, _, process):
        await desk.active_session.renew()
        assert is_alive(process)


async def test_ending_a_closed_session_ends_its_processes(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (desk, _, process):
        session_id = desk.active_session.session_id
        await desk.active_session.release()
        assert is_alive(process)
        assert desk.application.end_workspace(session_id)
        assert not desk.application.end_workspace(session_id)
        assert await until_ended(process)


async def test_program_end_leaves_background_processes_running(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (desk, _, process):
        await desk.active_session.close()
        await desk.application.store.close()
        assert is_alive(process)
