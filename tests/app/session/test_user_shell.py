"""Shell commands that a person runs in a session."""

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
    """Return whether the process whose id is in a file has ended; it may still be a zombie."""
    try:
        return (Path("/proc") / file.read_text().strip() / "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
async def test_shell_command_has_the_folder_and_variables_of_the_session(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("pwd; echo $COLOUR $1; exit 4", ["sky"], workspace, seconds=20)
    assert (ran.code, ran.output) == (4, f"{workspace.folder}\nblue sky\n")


@pytest.mark.slow
async def test_long_output_is_cut_in_the_middle(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("seq 1 100000", [], workspace, seconds=20)
    assert ran.output.startswith("1\n2\n")
    assert ran.output.endswith("99999\n100000\n")
    assert "bytes omitted" in ran.output
    assert len(ran.output) < 9_000


@pytest.mark.slow
async def test_shell_command_that_times_out_is_killed_with_its_children(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("sleep 600 & echo $! > pid; echo begun; wait", [], workspace, seconds=1.5)
    assert (ran.code, ran.output) == (None, "begun\n")
    assert is_dead(workspace.folder / "pid")


@pytest.mark.slow
async def test_background_children_of_a_shell_command_end_with_it(workspace: LocalWorkspace) -> None:
    ran = await LocalShell().run("sleep 600 & echo $! > pid", [], workspace, seconds=20)
    assert ran.code == 0
    assert is_dead(workspace.folder / "pid")


@pytest.mark.slow
async def test_shell_command_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "gone", ENVIRONMENT)
    with pytest.raises(Refused, match="couldn't be started in"):
        await LocalShell().run("true", [], workspace, seconds=20)
