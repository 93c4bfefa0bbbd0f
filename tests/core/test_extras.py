"""Hints about optional packages name the tool that can install them."""

import sys
from pathlib import Path

import pytest

from talaria.core.extras import command_for, install_command


@pytest.mark.parametrize(
    ("prefix", "installer", "editable", "expected"),
    [
        ("/opt/pipx/venvs/talaria-agent", "pip", False, "pipx install --force 'talaria-agent[slack]'"),
        ("/opt/uv/tools/talaria-agent", "uv", False, "uv tool install --force 'talaria-agent[slack]'"),
        ("/srv/venv", "uv", True, f"uv pip install --python {sys.executable} --editable 'talaria-agent[slack]'"),
    ],
)
def test_command_fits_the_tool_that_made_the_environment(
    prefix: str, installer: str, editable: bool, expected: str
) -> None:
    assert command_for("talaria-agent[slack]", Path(prefix), installer=installer, editable=editable) == expected


def test_command_names_the_checkout_that_was_installed() -> None:
    command = install_command("slack")
    assert "[slack]" in command
    assert sys.executable in command or "uv tool" in command or "pipx" in command
