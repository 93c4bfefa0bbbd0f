"""Workspace of an evicted session: state that the store doesn't have is retained, and nothing else."""

import sys
from pathlib import Path

import pytest

from talaria.app.session.workspaces import WorkspaceRegistry
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.tools.workspace import LocalWorkspace

SESSION = SessionId("one")


def _enter(workspaces: WorkspaceRegistry, folder: Path) -> LocalWorkspace:
    entry = workspaces.enter(SESSION, LocalWorkspace(folder, {"PATH": "/usr/bin"}), SessionContext(session_id=SESSION))
    entry.keep()
    return entry.workspace


def test_unchanged_workspace_is_dropped(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry()
    _enter(workspaces, tmp_path)
    workspaces.leave(SESSION)
    assert workspaces.find(SESSION) is None


def test_workspace_with_changed_variables_is_retained(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry()
    workspace = _enter(workspaces, tmp_path)
    workspace.set_environment({**workspace.environment, "MY_TOKEN": "a secret, which no store gets"})
    workspaces.leave(SESSION)
    again = workspaces.enter(SESSION, LocalWorkspace(tmp_path, {}), SessionContext(session_id=SESSION))
    assert again.workspace is workspace
    assert again.workspace.environment["MY_TOKEN"] == "a secret, which no store gets"


@pytest.mark.slow
async def test_workspace_with_running_processes_is_retained(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry()
    _enter(workspaces, tmp_path)
    entry = workspaces.find(SESSION)
    assert entry is not None
    waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = await entry.open_processes().start(waiting, folder=tmp_path, environment={}, on_output=lambda _: None)
    workspaces.leave(SESSION)
    assert workspaces.find(SESSION) is entry
    entry.open_processes().finish(child)
    workspaces.close()
    await child.wait()
