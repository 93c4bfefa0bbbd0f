"""Workspace state that survives eviction (folder, variables, processes) and ends when the session is closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tests.commands.command_fixture import ChatClient, open_chat_client
from tests.tools.process.process_fixture import start_sleeping_process

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
async def chat_with_a_process(home: Path) -> AsyncIterator[tuple[ChatClient, ModelServer, BackgroundProcess]]:
    """Open a chat with its own folder, a variable and a background process."""
    async with (
        ModelServer() as server,
        open_chat_client(home, server, chat=Address("telegram", "7"), key="k:7") as client,
        AsyncExitStack() as stack,
    ):
        client.application.processes.supervise_within(
            client.active_session.jobs, stack
        )  # as a gateway does for all sessions
        change_folder = "mkdir sub && cd sub && export MY_TOKEN=hush"
        server.script(Say(calls=[Ask("terminal", {"command": change_folder})]), Say("moved"))
        await client.say("go there")
        process = await start_sleeping_process(client.application.processes, client.active_session.session_id)
        yield client, server, process
        kill_tree(process.pid)


def is_alive(process: BackgroundProcess) -> bool:
    return is_running(process.pid)


async def until_ended(process: BackgroundProcess) -> bool:
    """Wait until the process tree is gone, which takes a moment after the kill."""
    await until(lambda: not is_alive(process))
    return True


async def test_folder_variables_and_processes_survive_eviction_of_the_agent(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (client, server, process), asyncio.TaskGroup() as jobs:
        cache: AgentCache[OpenAgent] = AgentCache(jobs)

        async def build() -> OpenAgent:
            if not client.active_session.is_open:
                await client.active_session.open()
            return OpenAgent(client.active_session)

        session_id = client.active_session.session_id
        first = await cache.get("k:7", "same", build)
        before = first.active_session.chat
        cache.evict("k:7")
        await until(lambda: not client.active_session.is_open)
        assert is_alive(process)
        await cache.get("k:7", "same", build)
        assert client.active_session.session_id == session_id
        assert client.active_session.chat is not before
        assert [one.id for one in await client.application.processes.of_session(session_id)] == [process.id]
        server.script(Say(calls=[Ask("terminal", {"command": 'echo "$PWD $MY_TOKEN"'})]), Say("there"))
        await client.say("where are you?")
        answers = [text for role, text in await client.transcript() if role == "tool"]
        assert answers[-1].startswith(f"{client.active_session.request.surface.folder}/sub hush\n")
        prompts = [request.json["messages"][0] for request in server.received]
        assert all(one == other for one, other in pairwise(prompts))
        cache.end("k:7")
    assert await until_ended(process)


async def test_reset_ends_the_processes_and_workspace_of_the_session(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (client, _, process):
        session_id = client.active_session.session_id
        await client.active_session.reset_session()
        assert await until_ended(process)
        assert client.application.workspaces.find(session_id) is None


async def test_renewed_agent_leaves_processes_running(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (client, _, process):
        await client.active_session.renew()
        assert is_alive(process)


async def test_ending_a_closed_session_ends_its_processes(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (client, _, process):
        session_id = client.active_session.session_id
        await client.active_session.release()
        assert is_alive(process)
        assert client.application.end_workspace(session_id)
        assert not client.application.end_workspace(session_id)
        assert await until_ended(process)


async def test_program_end_leaves_background_processes_running(tmp_path: Path) -> None:
    async with chat_with_a_process(tmp_path) as (client, _, process):
        await client.active_session.close()
        await client.application.store.close()
        assert is_alive(process)
