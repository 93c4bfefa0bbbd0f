"""Lines of a shell that a person runs."""

from pathlib import Path

import pytest

from talaria.app.session.workspaces import LocalShell
from talaria.core.errors import Refused
from talaria.tools.workspace import LocalWorkspace

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "COLOUR": "blue"}


@pytest.fixture
def workspace(tmp_path: Path) -> LocalWorkspace:
    return LocalWorkspace(tmp_path, ENVIRONMENT)


def is_dead(file: Path) -> bool:
    """Return whether the process whose number is in a file has ended; its remains may still wait to be removed."""
    try:
        return (Path("/proc") / file.read_text().strip() / "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
async def test_a_line_has_the_folder_and_the_variables_of_the_conversation(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("pwd; echo $COLOUR $1; exit 4", ["sky"], workspace, seconds=20)
    assert (ran.code, ran.output) == (4, f"{workspace.folder}\nblue sky\n")


@pytest.mark.slow
async def test_long_output_keeps_its_ends(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("seq 1 100000", [], workspace, seconds=20)
    assert ran.output.startswith("1\n2\n")
    assert ran.output.endswith("99999\n100000\n")
    assert "bytes omitted" in ran.output
    assert len(ran.output) < 9_000


@pytest.mark.slow
async def test_a_line_that_takes_too_long_is_ended_with_all_it_started(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("sleep 600 & echo $! > pid; echo begun; wait", [], workspace, seconds=1.5)
    assert (ran.code, ran.output) == (None, "begun\n")
    assert is_dead(workspace.folder / "pid")


@pytest.mark.slow
async def test_what_a_line_leaves_in_the_background_ends_with_it(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("sleep 600 & echo $! > pid", [], workspace, seconds=20)
    assert ran.code == 0
    assert is_dead(workspace.folder / "pid")


@pytest.mark.slow
async def test_a_folder_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "gone", ENVIRONMENT)
    with pytest.raises(Refused, match="couldn't be started in"):
        await LocalShell().run("true", [], workspace, seconds=20)
