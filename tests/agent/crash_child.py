"""A worker that is to be killed: ``python -m tests.agent.crash_child STORE PORT SESSION JOURNAL LIFE [DOOM]``.

Its tools write a line to the journal at start and end, and report their start to the parent on stdout. The call
whose word is DOOM never ends. LIFE counts the workers so far: each one's clock is an hour ahead of the one before, so
that the lease of the dead has lapsed.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.agent.agent_fixture import AgentSession, Echo, Word

from talaria.agent.environment import Limits
from talaria.contracts.tool import Call, Effect
from talaria.core.ids import SessionId
from talaria.http_client.client import HttpPool
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer


class Journal:
    """Log of the tool calls, in a file that survives the process."""

    def __init__(self, path: Path, doom: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._doom = doom

    def tool(self, effect: Effect) -> Echo:
        return Echo(effect.value, effect, self._work)

    async def _work(self, arguments: Word, call: Call) -> str:
        os.write(self._file, f"begin {arguments.word}\n".encode())
        sys.stdout.write(f"{arguments.word}\n")
        sys.stdout.flush()
        if arguments.word == self._doom:
            await asyncio.Event().wait()
        await asyncio.sleep(0.002)  # real time: a tool takes some time
        os.write(self._file, f"end {arguments.word}\n".encode())
        return f"did {arguments.word}"


async def main(store_path: str, port: str, session_id: str, journal_path: str, life: str, doom: str = "") -> None:
    """Resume the session after the last worker was killed."""
    journal = Journal(Path(journal_path), doom)
    clock = SettableClock(datetime.now(UTC) + timedelta(hours=int(life)))
    store = open_sqlite_store(Path(store_path), SqliteOptions(clock=clock))
    http = HttpPool()
    agent_session = AgentSession(
        ModelServer(port=int(port)), store, http, SessionId(session_id), Path(store_path).parent
    )
    end = await agent_session.run_pending_turns(
        *map(journal.tool, Effect), environment=agent_session.environment(limits=lambda: Limits(iterations=1_000))
    )
    await http.close()
    await store.close()
    sys.stdout.write(f"{end}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
