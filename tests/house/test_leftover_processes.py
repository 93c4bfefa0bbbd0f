"""Processes that tests leave running end with the run."""

import asyncio
import sys
from pathlib import Path

import pytest

from talaria.core.os_processes import is_running
from talaria.testing.wait import until

_RUN = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.leftover_processes import LeftoverProcesses
run = LeftoverProcesses(Path(sys.argv[1]))
folder = Path(sys.argv[1]) / "test_kettle0"
folder.mkdir()
left = subprocess.Popen(["sleep", "9873"], cwd=folder, env=eval(sys.argv[3]), start_new_session=True)
print(left.pid, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
print(*run.close())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc they aren't found")
@pytest.mark.parametrize(
    ("end", "environment", "reported"),
    [
        ("killed", {}, ""),
        ("normal", {}, "{folder}/test_kettle0/: sleep 9873 \n"),
        (
            "normal",
            {"PYTEST_CURRENT_TEST": "tests/test_tea.py::test_a cup (call)"},
            "tests/test_tea.py::test_a cup: sleep 9873 \n",
        ),
    ],
    ids=["killed", "folder", "name"],
)
async def test_detached_process_ends_with_its_run(
    tmp_path: Path, end: str, environment: dict[str, str], reported: str
) -> None:
    command = (sys.executable, "-c", _RUN, str(tmp_path), end, repr(environment))
    root = Path(__file__).parents[2]
    run = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=asyncio.subprocess.PIPE)
    output, _ = await run.communicate()
    pid, _, report = output.decode().partition("\n")
    await until(lambda: not is_running(int(pid)))
    assert report == reported.format(folder=tmp_path)
