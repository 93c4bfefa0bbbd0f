"""Hints about optional packages name the tool that can install them."""

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
def test_command_fits_the_tool_that_made_the_environment(method: Method, source: str, expected: str) -> None:
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
def test_environment_shows_what_made_it(tmp_path: Path, file: str, content: str, expected: str) -> None:
    (tmp_path / file).write_text(content)
    assert detect_method(tmp_path, in_environment=True) == expected


def test_environment_of_the_system_is_recognised_by_its_place(tmp_path: Path) -> None:
    assert detect_method(tmp_path, in_environment=False) == "system"
    assert detect_method(Path("/opt/homebrew/Cellar/talaria/1.0/libexec"), in_environment=True) == "homebrew"
    assert detect_method(Path("/nix/store/abc-talaria"), in_environment=False) == "nix"


def test_command_names_the_checkout_that_was_installed() -> None:
    command = install_command("slack")
    assert "[slack]" in command
    assert sys.executable in command or "uv tool" in command or "pipx" in command
