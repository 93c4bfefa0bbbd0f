"""Install commands for optional packages, by the tool that installed Talaria."""

import sys
from pathlib import Path

import pytest

from talaria.core.installation import Installation, Method, command_for, detect_method, install_command


@pytest.mark.parametrize(
    ("method", "source", "expected"),
    [
        ("pipx", "", "pipx install --force 'talaria-agent[slack]'"),
        ("uv tool", "", "uv tool install --force 'talaria-agent[slack]'"),
        ("uvx", "", "uvx --from 'talaria-agent[slack]' talaria"),
        ("uv", "/a/folder", f"uv pip install --python {sys.executable} '/a/folder[slack]'"),
        ("pip", "", f"{sys.executable} -m pip install 'talaria-agent[slack]'"),
        ("checkout", "/a/folder", f"{sys.executable} -m pip install --editable '/a/folder[slack]'"),
    ],
)
def test_install_command_uses_the_tool_that_created_the_environment(method: Method, source: str, expected: str) -> None:
    assert command_for("slack", Installation(method, Path("/srv/venv"), source)) == expected


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("uv-receipt.toml", "", "uv tool"),
        ("pipx_metadata.json", "{}", "pipx"),
        ("talaria-installed-by", "container\n", "container"),
        ("pyvenv.cfg", "home = /usr/bin\nuv = 0.9\n", "uv"),
        ("pyvenv.cfg", "home = /usr/bin\ncommand = python -m venv\n", "pip"),
    ],
)
def test_install_method_is_detected_from_files_of_the_environment(
    tmp_path: Path, file: str, content: str, expected: str
) -> None:
    (tmp_path / file).write_text(content)
    assert detect_method(tmp_path, in_environment=True) == expected


def test_system_homebrew_and_nix_installations_are_detected_by_path(tmp_path: Path) -> None:
    assert detect_method(tmp_path, in_environment=False) == "system"
    assert detect_method(Path("/opt/homebrew/Cellar/talaria/1.0/libexec"), in_environment=True) == "homebrew"
    assert detect_method(Path("/nix/store/abc-talaria"), in_environment=False) == "nix"


def test_install_command_names_the_extra_and_the_environment() -> None:
    command = install_command("slack")
    assert "[slack]" in command
    assert sys.executable in command or "uv tool" in command or "pipx" in command
