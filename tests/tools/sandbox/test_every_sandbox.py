"""What every kind of sandbox does for commands: with real bubblewrap, podman, docker and OpenSSH."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.tools.sandbox.sandboxes import (
    Place,
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


def _make(kind: str, root: Path, request: pytest.FixtureRequest) -> Place:
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
async def place(request: pytest.FixtureRequest, root: Path) -> AsyncIterator[Place]:
    place = _make(request.param, root, request)
    yield place
    place.processes.close()
    await place.sandbox.close()


async def test_folder_exports_and_exit_codes_are_as_without_a_sandbox(place: Place) -> None:
    assert await place.run("mkdir -p sub; cd sub; export A='1 2' B=x; pwd") == (
        f"{place.work}/sub\n[now in {place.work}/sub]\n[exit code 0]"
    )
    assert await place.run('pwd; echo "$A"; unset B; echo error >&2; exit 7') == (
        f"{place.work}/sub\n1 2\nerror\n[exit code 7]"
    )
    assert await place.run("echo ${B-gone}; pwd", workdir="..") == f"gone\n{place.work}\n[exit code 0]"
    assert await place.run("pwd") == f"{place.work}/sub\n[exit code 0]"


async def test_a_command_leaves_nothing_running(place: Place) -> None:
    name = f"98{place.sandbox.kind}"
    await place.run(f"rm -f begun; setsid sh -c 'touch begun; : {name}; sleep 9876' & until [ -e begun ]; do :; done")
    await until(lambda: not processes_with(name))


async def test_cancelling_ends_everything_inside(place: Place) -> None:
    name = f"97{place.sandbox.kind}"
    command = f"rm -f begun; setsid sh -c ': {name}; touch begun; sleep 9876' & sleep 9876; : {name}"
    running = asyncio.ensure_future(place.run(command))
    await until((place.work / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not processes_with(name))


async def test_a_time_limit_ends_everything_inside(place: Place) -> None:
    name = f"96{place.sandbox.kind}"
    with pytest.raises(ToolFailed, match="stopped after 1 s"):
        await place.run(f"echo begun; setsid sh -c ': {name}; sleep 9876' & sleep 9876", seconds=1)
    await until(lambda: not processes_with(name))


async def test_code_runs_inside_and_calls_tools(place: Place) -> None:
    code = "import os\nprint(tools.read_file(path='ä'), os.getcwd())\nopen('made', 'w').write('x')"
    assert await place.run_code(code) == f'read_file {{"path":"ä"}} {place.work}'
    assert (place.work / "made").read_text() == "x"
    with pytest.raises(ToolFailed, match=r"ZeroDivisionError(.|\n)*exit code 1"):
        await place.run_code("1 / 0")


async def test_a_folder_that_does_not_exist_is_named(place: Place) -> None:
    with pytest.raises(ToolFailed, match="nowhere"):
        await place.run("pwd", workdir=f"{place.work}/nowhere")
