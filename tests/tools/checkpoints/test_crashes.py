"""Checkpoints when processes are killed, and when several use one workspace."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.tools.checkpoints.workspaces import Workspace

ENGINES = ("git", "dulwich")
KILLED_AFTER_SNAPSHOT = """
import os, signal, sys
from pathlib import Path
from tests.tools.checkpoints.workspaces import Workspace
workspace = Workspace(Path(sys.argv[1]), sys.argv[2])
workspace.history.record_before("killed", "session", "turn-killed")
workspace.write("a", "half a wri")
os.kill(os.getpid(), signal.SIGKILL)
"""
HOLDS_LOCK = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_process_killed_during_a_write_leaves_a_restorable_checkpoint(tmp_path: Path, engine: str) -> None:
    workspace = Workspace(tmp_path, engine)
    workspace.write("a", "before")
    done = subprocess.run([sys.executable, "-c", KILLED_AFTER_SNAPSHOT, str(tmp_path), engine], check=False)
    assert done.returncode == -signal.SIGKILL
    history = workspace.history
    plan = history.plan(history.find("1"))
    assert (plan.written, plan.edited) == (("a",), ("a",))  # its writer is unknown, so it counts as an edit
    history.restore(history.find("1"), overwrite=True)
    assert workspace.tree() == {"a": "before"}


@pytest.mark.parametrize("engine", ENGINES)
def test_locks_of_killed_processes_are_removed(tmp_path: Path, engine: str) -> None:
    workspace = Workspace(tmp_path, engine)
    workspace.turn(a="1")
    (stored,) = workspace.options.folder.iterdir()
    for lock in ("git/index.lock", "git/refs/checkpoints/00000003.lock", "git/packed-refs.lock", "git/HEAD.lock"):
        (stored / lock).touch()
    (stored / "git.new").mkdir()
    workspace.turn(a="2")
    assert len(workspace.history.list()) == 2


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "git")
    workspace.turn(a="1")
    (stored,) = workspace.options.folder.iterdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_LOCK, str(stored / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    holder.stdout.readline()
    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(workspace.history.list)
        os.kill(holder.pid, signal.SIGKILL)
        assert len(listing.result()) == 1
    holder.communicate()


@pytest.mark.parametrize("engine", ENGINES)
def test_two_sessions_record_checkpoints_in_one_workspace(tmp_path: Path, engine: str) -> None:
    workspace = Workspace(tmp_path, engine)
    before = workspace.tree()

    def work(name: str) -> None:
        history = Workspace(tmp_path, engine).history
        for number in range(3):
            history.record_before(name, name, f"{name}-{number}")
            workspace.write(f"{name}-{number}", "x")
            history.record_after(f"{name}-{number}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ("one", "two")))
    history = workspace.history
    oldest = history.list()[-1]
    assert history.restore(oldest, overwrite=True).removed
    assert workspace.tree() == before
