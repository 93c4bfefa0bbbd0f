"""`talaria trust`: skills of a project folder are ignored until it is trusted."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program

from talaria.app.session.toolsets import list_skill_folders
from talaria.settings.profiles import Profiles


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    skill = tmp_path / "project" / ".talaria" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: Deploy it.\n---\nRun it.\n")
    return tmp_path / "project"


def test_a_folder_is_trusted_listed_and_revoked(program: Program, project: Path) -> None:
    profile = Profiles(program.home).active()
    assert len(list_skill_folders(profile, project, (), {})) == 1
    assert "deploy/SKILL.md" in program.run("trust", str(project)).err
    assert len(list_skill_folders(profile, project, (), {})) == 2
    listed = json.loads(program.run("trust", "list", "--json").out)
    assert listed == [{"folder": str(project.resolve()), "unchanged": True}]
    assert program.run("trust", "revoke", str(project)).code == 0
    assert len(list_skill_folders(profile, project, (), {})) == 1
    assert program.run("trust", "revoke", str(project)).code == 1


def test_tool_cannot_trust_a_folder(program: Program, project: Path) -> None:
    done = program.run("trust", str(project), env={"TALARIA_SESSION_ID": "s1"})
    assert done.code != 0
    assert "changes what the agent may do" in done.err


def test_folder_without_project_files_is_not_trusted(program: Program, tmp_path: Path) -> None:
    assert "nothing to trust" in program.run("trust", str(tmp_path)).err
