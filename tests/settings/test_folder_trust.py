"""Commands and skills of a project take effect only as the owner has trusted them."""

from pathlib import Path

import pytest

from talaria.core.errors import Refused
from talaria.settings.profiles import FolderTrust


@pytest.fixture
def project(tmp_path: Path) -> Path:
    commands = tmp_path / "project" / ".talaria" / "commands"
    commands.mkdir(parents=True)
    (commands / "sta.md").write_text("---\nrun: touch ran\n---\n")
    return tmp_path / "project"


@pytest.fixture
def trust(tmp_path: Path) -> FolderTrust:
    (tmp_path / "profile").mkdir()
    return FolderTrust(tmp_path / "profile")


def test_folder_without_commands_or_skills_needs_no_trust(tmp_path: Path, trust: FolderTrust) -> None:
    assert trust.is_trusted(tmp_path)


def test_a_folder_is_trusted_by_its_real_path(project: Path, trust: FolderTrust, tmp_path: Path) -> None:
    assert not trust.is_trusted(project)
    (tmp_path / "link").symlink_to(project)
    trust.trust(tmp_path / "link")
    assert trust.is_trusted(project)
    assert list(trust.folders()) == [str(project.resolve())]
    assert (tmp_path / "profile" / "trusted-folders.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [".talaria/commands/sta.md", ".talaria/commands/new.md", ".talaria/skills/a/SKILL.md"])
def test_changed_or_added_file_ends_the_trust(project: Path, trust: FolderTrust, name: str) -> None:
    trust.trust(project)
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("---\nrun: touch other\n---\n")
    assert not trust.is_trusted(project)
    trust.trust(project)
    assert trust.is_trusted(project)


def test_changed_file_behind_a_symlink_ends_the_trust(project: Path, trust: FolderTrust, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "SKILL.md").write_text("one")
    (project / ".talaria" / "skills").mkdir()
    (project / ".talaria" / "skills" / "linked").symlink_to(tmp_path / "elsewhere")
    trust.trust(project)
    (tmp_path / "elsewhere" / "SKILL.md").write_text("two")
    assert not trust.is_trusted(project)


def test_trust_can_be_revoked(project: Path, trust: FolderTrust) -> None:
    assert not trust.revoke(project)
    trust.trust(project)
    assert trust.revoke(project)
    assert not trust.is_trusted(project)


def test_unreadable_trust_list_is_refused(project: Path, trust: FolderTrust, tmp_path: Path) -> None:
    (tmp_path / "profile" / "trusted-folders.json").write_text("{")
    with pytest.raises(Refused, match="Can't read"):
        trust.is_trusted(project)
