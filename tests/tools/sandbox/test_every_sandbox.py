"""Commands in every kind of sandbox, with real bubblewrap, podman, docker and OpenSSH."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.tools.sandbox.sandboxes import (
    SandboxedFolder,
    bubblewrap_problem,
    make_bubblewrap,
    make_container,
    make_ssh,
    new_folder,
    processes_with,
)

from talaria.core.errors import ToolFailed
from talaria.testing.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


def _make(kind: str, root: Path, request: pytest.FixtureRequest) -> SandboxedFolder:
    work = root / f"work-{kind}"
    work.mkdir(exist_ok=True)
    if kind == "bubblewrap":
        if problem := bubblewrap_problem():
            pytest.skip(f"No bubblewrap here: {problem}")
        return make_bubblewrap(root, work)
    if kind in {"podman", "docker"}:
        return make_container(request.getfixturevalue(kind), root, work)
    return make_ssh(root, work, request.getfixturevalue("ssh_server")[0])


@pytest.fixture(params=["bubblewrap", "podman", "docker", "ssh"])
async def sandboxed(request: pytest.FixtureRequest, root: Path) -> AsyncIterator[SandboxedFolder]:
    sandboxed = _make(request.param, root, request)
    yield sandboxed
    sandboxed.processes.close()
    await sandboxed.sandbox.close()


async def test_folder_exports_and_exit_codes_equal_those_without_a_sandbox(sandboxed: SandboxedFolder) -> None:
    assert await sandboxed.run("mkdir -p sub; cd sub; export A='1 2' B=x; pwd") == (
        f"{sandboxed.work}/sub\n[now in {sandboxed.work}/sub]\n[exit code 0]"
    )
    assert await sandboxed.run('pwd; echo "$A"; unset B; echo error >&2; exit 7') == (
        f"{sandboxed.work}/sub\n1 2\nerror\n[exit code 7]"
    )
    assert await sandboxed.run("echo ${B-gone}; pwd", workdir="..") == f"gone\n{sandboxed.work}\n[exit code 0]"
    assert await sandboxed.run("pwd") == f"{sandboxed.work}/sub\n[exit code 0]"


async def test_command_leaves_no_process_running(sandboxed: SandboxedFolder) -> None:
    name = f"98{sandboxed.sandbox.kind}"
    await sandboxed.run(
        f"rm -f begun; setsid sh -c 'touch begun; : {name}; sleep 9876' & until [ -e begun ]; do :; done"
    )
    await until(lambda: not processes_with(name))


async def test_cancelled_command_ends_all_processes_inside(sandboxed: SandboxedFolder) -> None:
    name = f"97{sandboxed.sandbox.kind}"
    command = f"rm -f begun; setsid sh -c ': {name}; touch begun; sleep 9876' & sleep 9876; : {name}"
    running = asyncio.ensure_future(sandboxed.run(command))
    await until((sandboxed.work / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not processes_with(name))


async def test_time_limit_ends_all_processes_inside(sandboxed: SandboxedFolder) -> None:
    name = f"96{sandboxed.sandbox.kind}"
    with pytest.raises(ToolFailed, match="stopped after 1 s"):
        await sandboxed.run(f"echo begun; setsid sh -c ': {name}; sleep 9876' & sleep 9876", seconds=1)
    await until(lambda: not processes_with(name))


async def test_code_runs_inside_and_calls_tools(sandboxed: SandboxedFolder) -> None:
    code = "import os\nprint(tools.read_file(path='ä'), os.getcwd())\nopen('made', 'w').write('x')"
    assert await sandboxed.run_code(code) == f'read_file {{"path":"ä"}} {sandboxed.work}'
    assert (sandboxed.work / "made").read_text() == "x"
    with pytest.raises(ToolFailed, match=r"ZeroDivisionError(.|\n)*exit code 1"):
        await sandboxed.run_code("1 / 0")


async def test_missing_working_folder_is_reported_by_name(sandboxed: SandboxedFolder) -> None:
    with pytest.raises(ToolFailed, match="nowhere"):
        await sandboxed.run("pwd", workdir=f"{sandboxed.work}/nowhere")
