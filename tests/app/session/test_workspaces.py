"""What remains of an evicted session: the state that the store doesn't have, and nothing else."""

import sys
from pathlib import Path

import pytest

from talaria.app.session.workspaces import WorkspaceRegistry
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.tools.workspace import LocalWorkspace

SESSION = SessionId("one")


def _entered(places: WorkspaceRegistry, folder: Path) -> LocalWorkspace:
    place = places.enter(SESSION, LocalWorkspace(folder, {"PATH": "/usr/bin"}), SessionContext(session_id=SESSION))
    place.keep()
    return place.workspace


def test_a_place_where_nothing_was_changed_is_forgotten(tmp_path: Path) -> None:
    places = WorkspaceRegistry()
    _entered(places, tmp_path)
    places.leave(SESSION)
    assert places.find(SESSION) is None


def test_variables_that_a_command_has_set_last(tmp_path: Path) -> None:
    places = WorkspaceRegistry()
    workspace = _entered(places, tmp_path)
    workspace.set_environment({**workspace.environment, "MY_TOKEN": "a secret, which no store gets"})
    places.leave(SESSION)
    again = places.enter(SESSION, LocalWorkspace(tmp_path, {}), SessionContext(session_id=SESSION))
    assert again.workspace is workspace
    assert again.workspace.environment["MY_TOKEN"] == "a secret, which no store gets"


@pytest.mark.slow
async def test_processes_that_run_last(tmp_path: Path) -> None:
    places = WorkspaceRegistry()
    _entered(places, tmp_path)
    place = places.find(SESSION)
    assert place is not None
    waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = await place.open_processes().start(waiting, folder=tmp_path, environment={}, heard=lambda _: None)
    places.leave(SESSION)
    assert places.find(SESSION) is place
    place.open_processes().finish(child)
    places.close()
    await child.wait()
