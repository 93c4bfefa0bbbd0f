"""A program with a goal, to be killed by tests: ``python -m tests.goals.crash_child STORE PORT SESSION``."""

import asyncio
import sys
from pathlib import Path

from tests.agent.agent_fixture import Workshop
from tests.goals.goal_fixture import pursue

from talaria.core.ids import SessionId
from talaria.http_client.client import HttpPool
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import until


async def main(store_path: str, port: str, session_id: str) -> None:
    """Resume the goal after the last process was killed, until it is reached."""
    store = open_sqlite_store(Path(store_path))
    http = HttpPool()
    shop = Workshop(ModelServer(port=int(port)), store, http, SessionId(session_id), Path(store_path).parent)
    async with pursue(shop) as pursuit:
        if await pursuit.manager.load() is None:
            await pursuit.manager.set("Win the game")
        pursuit.begin()
        sys.stdout.write("begun\n")
        sys.stdout.flush()

        async def is_done() -> bool:
            state = await pursuit.manager.load()
            return state is None or state.status == "done"

        await until(is_done)
    await http.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
