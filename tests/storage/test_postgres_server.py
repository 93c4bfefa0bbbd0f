"""The PostgreSQL server that tests and benchmarks start."""

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from talaria.testing.postgres import MISSING, find_postgres
from talaria.testing.wait import LIMIT

OWNER = """
import sys
from talaria.testing.postgres import PostgresServer
with PostgresServer() as server:
    sys.stdout.write(server.url + "\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.mark.skipif(find_postgres() is None, reason=MISSING)
@pytest.mark.parametrize("violent", [False, True], ids=["ended", "killed"])
def test_server_ends_with_the_process_that_started_it(violent: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        folder = data_folder(url)
        if violent:
            owner.kill()
        else:
            owner.stdin.close()
    deadline = time.monotonic() + LIMIT
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def data_folder(url: str) -> Path:
    with psycopg.connect(url) as raw:
        row = raw.execute("SHOW data_directory").fetchone()
    assert row is not None
    return Path(row[0])
