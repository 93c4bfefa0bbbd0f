"""A program with a goal, to be killed by tests: ``python -m tests.goals.crash_child STORE PORT SESSION``."""

import asyncio
import sys
from pathlib import Path

from tests.agent.agent_fixture import AgentSession
from tests.goals.goal_fixture import open_goal_session

from talaria.core.ids import SessionId
from talaria.http_client.client import HttpPool
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import until


async def main(store_path: str, port: str, session_id: str) -> None:
    """Resume the goal after the last process was killed, until it is reached."""
    store = open_sqlite_store(Path(store_path))
    http = HttpPool()
    agent_session = AgentSession(
        ModelServer(port=int(port)), store, http, SessionId(session_id), Path(store_path).parent
    )
    async with open_goal_session(agent_session) as goal_session:
        if await goal_session.manager.load() is None:
            await goal_session.manager.set("Win the game")
        goal_session.begin()
        sys.stdout.write("begun\n")
        sys.stdout.flush()

        async def is_done() -> bool:
            state = await goal_session.manager.load()
            return state is None or state.status == "done"

        await until(is_done)
    await http.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
