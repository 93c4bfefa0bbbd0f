"""A store that cannot be written can be read, and a starting server waits for it if that may help."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Program
from tests.cli.stored_sessions import converse, text_message

from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import new_id
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

LIMIT = 100  # seconds
_WAIT = """
trap 'kill $(jobs -p) 2>/dev/null' EXIT
until_shown() { for _ in $(seq 1000); do grep -q "$1" "$2" && return; sleep 0.1; done; echo "no $1" >&2; exit 1; }
"""
_FILL = 'dd if=/dev/zero of="$TALARIA_HOME/filler" bs=1k 2>/dev/null\n'
_MAKE_READ_ONLY = 'mount -o remount,ro "$TALARIA_HOME"\n'


class Disk:
    """A separate small disk with a profile; only commands that run there see it."""

    def __init__(self, folder: Path) -> None:
        self.seed, self.disk, self.results = (folder / name for name in ("seed", "disk", "results"))
        for path in (self.seed, self.disk, self.results):
            path.mkdir(mode=0o700)
        program = Program(self.seed)
        converse(program, NewSession(source="cli", title="Travel"), text_message("to the lighthouse"))
        self.store = self.seed / "profiles" / "default" / "talaria.db"
        (self.store.parent / "config.toml").write_text("[gateway]\nport = 0\n[api]\nenabled = true\nport = 0\n")

    def run(self, script: str) -> None:
        """Run a script on the disk; ``$T`` is the program, ``$R`` a folder for results."""
        mount = f'mount -t tmpfs -o size=4m,mode=0700 none "{self.disk}" && cp -a "{self.seed}/." "{self.disk}"'
        environment = Program(self.disk).environment(T=TALARIA, R=str(self.results))
        subprocess.run(
            [*_unshare(), "sh", "-c", f"{mount} && {{ {_WAIT}{script} }}"], env=environment, check=True, timeout=LIMIT
        )

    def result(self, name: str) -> str:
        return (self.results / name).read_text()


def _unshare() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--"]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    probe = [*_unshare(), "sh", "-c", f'mount -t tmpfs -o size=1m none "{tmp_path}"']
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")
    return Disk(tmp_path)


@pytest.mark.parametrize("trouble", [_FILL, _MAKE_READ_ONLY], ids=["full disk", "read-only file system"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean end", "killed"])
def test_store_that_cannot_be_written_can_be_read(disk: Disk, trouble: str, clean: bool) -> None:
    if not clean:
        leave_log(disk.store)
    disk.run(
        trouble + '"$T" sessions list > "$R/list" 2>&1 || exit 1\n'
        '"$T" sessions search lighthouse > "$R/search" 2>&1 || exit 1\n'
        '"$T" sessions rename Travel Trip > "$R/rename" 2>&1 && exit 1\n'
        '"$T" doctor --offline > "$R/doctor" 2>&1 && exit 1\n'
        "true\n"
    )
    assert "Travel" in disk.result("list")
    assert clean or "In the log" in disk.result("list")
    assert "[lighthouse]" in disk.result("search")
    reason = "disk is full" if trouble == _FILL else "ead-only file system"
    assert reason in disk.result("rename").lower() or "is read-only" in disk.result("rename")
    assert trouble != _FILL or "is full, so nothing can be saved." in disk.result("doctor")
    assert "Traceback" not in disk.result("rename") + disk.result("doctor")


@pytest.mark.parametrize("command", ["gateway run", "serve", "chat -q hello"])
def test_program_on_a_read_only_file_system_reports_it(disk: Disk, command: str) -> None:
    disk.run(f'{_MAKE_READ_ONLY}"$T" {command} > "$R/out" 2>&1 && exit 1\ntrue\n')
    assert disk.result("out").count("\n") == 1
    assert "Read-only file system" in disk.result("out")


def test_gateway_that_starts_on_a_full_disk_serves_when_there_is_space(disk: Disk) -> None:
    disk.run(
        f'{_FILL}"$T" gateway run > "$R/out" 2>&1 & gateway=$!\n'
        'until_shown "Waiting for the store" "$R/out"; rm "$TALARIA_HOME/filler"\n'
        'until_shown "The gateway is serving" "$R/out"; kill $gateway; wait $gateway\n'
    )
    assert "its disk is full" in disk.result("out")


def test_gateway_that_waits_for_its_store_can_be_stopped(disk: Disk) -> None:
    disk.run(
        f'{_FILL}"$T" gateway run > "$R/out" 2>&1 & gateway=$!\n'
        'until_shown "Waiting for the store" "$R/out"; kill $gateway; wait $gateway; echo $? > "$R/code"\n'
    )
    assert "Traceback" not in disk.result("out")
    assert disk.result("code") == "0\n"


@pytest.fixture
def stopped_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that has been set up, and is down."""
    if find_postgres() is None:
        pytest.skip(MISSING)
    with PostgresServer() as server:
        server.stop()
        yield server


def test_gateway_that_starts_while_postgresql_restarts_waits_for_it(
    tmp_path: Path, stopped_server: PostgresServer
) -> None:
    program = Program(tmp_path)
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "config.toml").write_text(
        f'[store]\nurl = "{stopped_server.url}"\nschema = "s{new_id()}"\n'
        "[gateway]\nport = 0\n[api]\nenabled = true\nport = 0\n"
    )
    with subprocess.Popen(
        [TALARIA, "gateway", "run"],
        env=program.environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert "Waiting for the store" in process.stderr.readline()
            stopped_server.start()
            assert any("The gateway is serving" in line for line in process.stderr)
            process.terminate()
            assert process.wait(LIMIT) == 0
        finally:
            process.kill()
    log = (folder / "logs" / "talaria.log").read_text()
    assert "waiting for the store" in log
    assert "can't be reached" in log


def leave_log(store: Path) -> None:
    """Write to a store and leave it like a killed process does: with a write-ahead log, without its index."""
    database = open_sqlite(store)
    database.write(lambda tx: tx.sessions.create(NewSession(source="cli", title="In the log")))
    names = [store, Path(f"{store}-wal")]
    left = [name.read_bytes() for name in names]
    database.close()
    for name, content in zip(names, left, strict=True):
        name.write_bytes(content)
