"""The command that installs an optional package, for the installer that was used for Talaria."""

import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

DISTRIBUTION = "talaria-agent"


class _Folder(Struct):
    editable: bool = False


class _Origin(Struct):
    """The content of ``direct_url.json``, which installers write: the folder or archive a package came from."""

    url: str
    dir_info: _Folder | None = None


def install_command(extra: str) -> str:
    """Return the pip, uv or pipx command that adds the packages of an extra to this installation."""
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:  # run from its source folder, not installed
        return command_for(f".[{extra}]", Path(sys.prefix), installer="pip", editable=True)
    origin = _read_origin(found)
    where = unquote(urlsplit(origin.url).path) if origin and origin.url.startswith("file:") else DISTRIBUTION
    editable = origin is not None and origin.dir_info is not None and origin.dir_info.editable
    installer = (found.read_text("INSTALLER") or "pip").strip()
    return command_for(f"{where}[{extra}]", Path(sys.prefix), installer=installer, editable=editable)


def pip_command(python: str = sys.executable, *, installer: str = "pip") -> Sequence[str]:
    """Return the command that installs packages into a Python: its own pip, or uv if it has none."""
    if installer == "uv" or find_spec("pip") is None:
        return ("uv", "pip", "install", "--python", python)
    return (python, "-m", "pip", "install")


def command_for(requirement: str, prefix: Path, *, installer: str, editable: bool) -> str:
    """Return the command for an environment at ``prefix`` created by ``installer``."""
    if "pipx" in prefix.parts:
        command = ["pipx", "install", "--force", *(["--editable"] if editable else []), requirement]
    elif prefix.parent.name == "tools" and prefix.parent.parent.name == "uv":
        command = ["uv", "tool", "install", "--force", *(["--editable"] if editable else []), requirement]
    else:
        command = [*pip_command(installer=installer), *(["--editable"] if editable else []), requirement]
    return shlex.join(command)


def _read_origin(found: Distribution) -> _Origin | None:
    text = found.read_text("direct_url.json")
    try:
        return msgspec.json.decode(text, type=_Origin) if text else None
    except msgspec.DecodeError:
        return None
