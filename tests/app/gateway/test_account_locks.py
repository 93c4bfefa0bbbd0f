"""Account locks: only one gateway on a machine uses an account of a network."""

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from talaria.app.gateway.build import lock_account
from talaria.core.errors import Refused

LOCK_SCRIPT = """\
import asyncio, sys
from contextlib import AsyncExitStack
from pathlib import Path
from talaria.app.gateway.build import lock_account

async def main():
    async with AsyncExitStack() as stack:
        lock_account(Path(sys.argv[1]), "telegram", ["123:abc"], sys.argv[2], stack)
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


def lock_elsewhere(folder: Path, store: str) -> subprocess.Popen[str]:
    """Let another process lock the account until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK_SCRIPT, str(folder), store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


async def test_account_used_by_another_profile_is_refused_until_that_process_ends(tmp_path: Path) -> None:
    with lock_elsewhere(tmp_path, "one") as other:
        async with AsyncExitStack() as stack:
            with pytest.raises(Refused, match=f"process {other.pid}\\) already uses this account"):
                lock_account(tmp_path, "telegram", ["123:abc"], "two", stack)
            lock_account(tmp_path, "telegram", ["456:def"], "two", stack)
        other.kill()
        other.wait()
        async with AsyncExitStack() as stack:
            lock_account(tmp_path, "telegram", ["123:abc"], "two", stack)


async def test_workers_on_one_store_share_the_account(tmp_path: Path) -> None:
    with lock_elsewhere(tmp_path, "one") as first, lock_elsewhere(tmp_path, "one") as second:
        first.kill()
        first.wait()
        async with AsyncExitStack() as stack:
            with pytest.raises(Refused):
                lock_account(tmp_path, "telegram", ["123:abc"], "two", stack)
            lock_account(tmp_path, "telegram", ["123:abc"], "one", stack)
        second.kill()


async def test_lock_file_contains_neither_token_nor_database_password(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        lock_account(tmp_path, "telegram", ["123:abc"], "postgresql://user:hush@host/db", stack)
        (lock,) = tmp_path.iterdir()  # noqa: ASYNC240 (nothing else runs here)
        assert "123" not in lock.name
        assert "hush" not in lock.read_text()
