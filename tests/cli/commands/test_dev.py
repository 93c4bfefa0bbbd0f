"""`talaria dev new-platform`: a package whose own tests pass."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.app.program import Program

from talaria.settings.environment import process_environment


def test_a_new_platform_passes_the_contract_suite(tmp_path: Path) -> None:
    folder = tmp_path / "pager"
    created = Program(tmp_path / "home").run("dev", "new-platform", "pager", "--folder", str(folder))
    assert (created.code, created.err) == (0, "")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["talaria.platform_setups"] == {"pager": "talaria_pager.setup:SETUP"}
    assert not any("linechat" in file.read_text().lower() for file in folder.rglob("*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error"]
    environment = {**process_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " skipped" not in done.stdout


@pytest.mark.parametrize("name", ["Pager", "../pager", "2way", "a-b", ""])
def test_invalid_platform_names_are_refused(tmp_path: Path, name: str) -> None:
    refused = Program(tmp_path).run("dev", "new-platform", name)
    assert refused.code == 1
    assert "use lower-case letters and digits" in refused.err


def test_new_platform_in_a_non_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pager").mkdir()
    (tmp_path / "pager" / "notes.txt").touch()
    refused = Program(tmp_path / "home").run("dev", "new-platform", "pager", "--folder", str(tmp_path / "pager"))
    assert refused.code == 1
    assert "isn't empty" in refused.err
    assert len(list((tmp_path / "pager").iterdir())) == 1
