"""`talaria checkpoints`: list, compare, restore and prune."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program

from talaria.settings.environment import process_environment
from talaria.tools.checkpoints.history import Retention
from talaria.tools.checkpoints.profile_checkpoints import CheckpointOptions, ProfileCheckpoints


class Project:
    """A workspace in which the agent has changed a file once, and the program."""

    def __init__(self, base: Path) -> None:
        self.program = Program(base)
        self.folder = base / "project"
        self.folder.mkdir()
        self.file = self.folder / "a.txt"
        self.file.write_text("one\n")
        profile = base / "profiles" / "default"
        options = CheckpointOptions(
            folder=profile / "checkpoints",
            home=base / "nobody",
            path=process_environment()["PATH"],
            retention=Retention(age=timedelta(days=30)),
        )
        history = ProfileCheckpoints(options).open(self.folder)
        history.record_before("make it two", "session", "turn")
        self.file.write_text("two\n")
        history.record_after("turn")

    def run(self, action: str, *arguments: str) -> Outcome:
        """Run an action for the folder of the project."""
        return self.program.run("checkpoints", action, *arguments, "--folder", str(self.folder))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_checkpoints_are_listed(project: Project) -> None:
    listed = project.run("list", "--json")
    (one,) = json.loads(listed.out)
    assert (one["number"], one["label"], one["session_id"]) == (1, "make it two", "session")
    (workspace,) = json.loads(project.program.run("checkpoints", "list", "--all", "--json").out)
    assert (workspace["folder"], workspace["checkpoints"]) == (str(project.folder), 1)


def test_diff_is_printed_as_a_patch(project: Project) -> None:
    shown = project.run("diff")
    assert shown.out == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


def test_restore_returns_to_the_checkpoint(project: Project) -> None:
    restored = project.run("restore", "1")
    assert (restored.code, project.file.read_text()) == (0, "one\n")
    assert "restore 1` undoes this" in restored.out


def test_restore_refuses_to_overwrite_manual_edits(project: Project) -> None:
    project.file.write_text("mine\n")
    refused = project.run("restore", "1")
    assert refused.code == 1
    assert "a.txt" in refused.err
    assert "--keep-edits" in refused.err
    assert project.file.read_text() == "mine\n"
    assert "edited since, not by the agent: a.txt" in project.run("restore", "1", "--dry-run").out
    project.run("restore", "1", "--keep-edits")
    assert project.file.read_text() == "mine\n"
    project.run("restore", "2", "--force")
    assert project.file.read_text() == "one\n"


def test_unknown_checkpoint_is_reported(project: Project) -> None:
    refused = project.run("restore", "7")
    assert refused.code == 1
    assert "There is no checkpoint `7`" in refused.err


def test_prune_deletes_checkpoints(project: Project) -> None:
    assert json.loads(project.program.run("checkpoints", "prune", "--json").out) == {"removed": 0}
    assert project.program.run("checkpoints", "prune", "--all").out == "Deleted 1 checkpoint.\n"
    assert project.run("list", "--json").out == "[]\n"


def test_tool_cannot_restore_or_delete_checkpoints(project: Project) -> None:
    for arguments in (["restore", "1"], ["prune", "--all"]):
        refused = project.program.run("checkpoints", *arguments, env={"TALARIA_SESSION_ID": "s"})
        assert refused.code != 0
    assert project.file.read_text() == "two\n"
