"""The command that installs an optional package, for the installer that was used for Talaria."""

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from talaria.core.installation import DISTRIBUTION, Installation, find_installation


def install_command(extra: str) -> str:
    """Return the pip, uv or pipx command that adds the packages of an extra to this installation."""
    return command_for(extra, find_installation())


def pip_command(python: str = sys.executable) -> Sequence[str]:
    """Return the command that installs packages into a Python: its own pip, or uv if it has none."""
    if find_spec("pip") is None:
        return ("uv", "pip", "install", "--python", python)
    return (python, "-m", "pip", "install")


def command_for(extra: str, installation: Installation) -> str:
    """Return the command that adds the packages of an extra to an installation."""
    requirement = f"{installation.source or DISTRIBUTION}[{extra}]"
    editable = ["--editable"] if installation.method == "checkout" else []
    match installation.method:
        case "pipx":
            command = ["pipx", "install", "--force", requirement]
        case "uv tool":
            command = ["uv", "tool", "install", "--force", requirement]
        case "uvx":
            command = ["uvx", "--from", requirement, "talaria"]
        case "uv":
            command = ["uv", "pip", "install", "--python", sys.executable, requirement]
        case _:
            command = [*pip_command(), *editable, requirement]
    return shlex.join(command)
