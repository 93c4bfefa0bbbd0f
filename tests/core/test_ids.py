"""Ids sort by time, and tell whether a worker of this machine is dead."""

import os
import subprocess
import sys

from talaria.core.ids import WorkerId, is_gone, new_id, new_worker_id

NEW_WORKER = [sys.executable, "-c", "from talaria.core.ids import new_worker_id; print(new_worker_id())"]


def test_ids_are_short_unlike_and_safe_in_a_file_name() -> None:
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(one) == 16 and one.isalnum() for one in made)


def test_a_living_worker_is_not_gone() -> None:
    assert not is_gone(new_worker_id())


def test_a_worker_that_ended_is_gone() -> None:
    told = subprocess.run(NEW_WORKER, capture_output=True, text=True, check=True)
    assert is_gone(WorkerId(told.stdout.strip()))


def test_worker_whose_parent_has_not_reaped_it_is_gone() -> None:
    with subprocess.Popen(NEW_WORKER, stdout=subprocess.PIPE, text=True) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.stdout is not None
        assert is_gone(WorkerId(child.stdout.read().strip()))


def test_worker_whose_pid_belongs_to_another_process_is_gone() -> None:
    told = subprocess.run(NEW_WORKER, capture_output=True, text=True, check=True)
    machine, _, name = told.stdout.strip().rsplit(":", 2)
    assert is_gone(WorkerId(f"{machine}:{os.getpid()}:{name}"))


def test_nothing_is_said_of_workers_elsewhere() -> None:
    assert not is_gone(WorkerId("elsewhere/1:1:abc"))
    assert not is_gone(WorkerId("worker-1"))
