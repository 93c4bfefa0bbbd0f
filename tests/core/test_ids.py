"""Ids, and the check whether a worker of this machine has ended."""

import os
import subprocess
import sys

from talaria.core.ids import WorkerId, is_gone, new_id, new_worker_id

NEW_WORKER = [sys.executable, "-c", "from talaria.core.ids import new_worker_id; print(new_worker_id())"]


def test_ids_are_short_unique_and_alphanumeric() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 16 and one.isalnum() for one in ids)


def test_running_worker_is_not_gone() -> None:
    assert not is_gone(new_worker_id())


def test_worker_whose_process_ended_is_gone() -> None:
    finished = subprocess.run(NEW_WORKER, capture_output=True, text=True, check=True)
    assert is_gone(WorkerId(finished.stdout.strip()))


def test_worker_whose_parent_has_not_reaped_it_is_gone() -> None:
    with subprocess.Popen(NEW_WORKER, stdout=subprocess.PIPE, text=True) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.stdout is not None
        assert is_gone(WorkerId(child.stdout.read().strip()))


def test_worker_whose_pid_belongs_to_another_process_is_gone() -> None:
    finished = subprocess.run(NEW_WORKER, capture_output=True, text=True, check=True)
    machine, _, name = finished.stdout.strip().rsplit(":", 2)
    assert is_gone(WorkerId(f"{machine}:{os.getpid()}:{name}"))


def test_worker_of_another_machine_does_not_count_as_gone() -> None:
    assert not is_gone(WorkerId("elsewhere/1:1:abc"))
    assert not is_gone(WorkerId("worker-1"))
