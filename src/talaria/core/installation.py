"""Installation of Talaria: its environment, the tool that made it, and the installer for more packages.

`talaria update` puts each version into an environment of its own, in ``talaria-versions`` inside the first one. The
launcher ``bin/talaria`` of the first environment is then a link to the current version's.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from talaria.core.errors import Refused

DISTRIBUTION = "talaria-agent"
VERSIONS_FOLDER = "talaria-versions"
METHOD_FILE = "talaria-installed-by"  # in the environment; written by our container image
Method = Literal["checkout", "pip", "uv", "uv tool", "uvx", "pipx", "homebrew", "nix", "container", "system"]
_LAST_LINES = 15
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_UV_PLACES = (".local/bin/uv", ".cargo/bin/uv")


class _FolderInfo(Struct):
    editable: bool = False


class _Origin(Struct):
    """The content of ``direct_url.json``, which installers write: the folder or archive a package came from."""

    url: str
    dir_info: _FolderInfo | None = None


class Installation(Struct, frozen=True):
    """Installation of Talaria: ``prefix`` is the environment that its installer made, ``source`` a local origin."""

    method: Method
    prefix: Path
    source: str = ""

    @property
    def launcher(self) -> Path:
        """The command that starts the current version."""
        return self.prefix / "bin" / "talaria"

    @property
    def versions_folder(self) -> Path:
        """Folder of the environments that `talaria update` makes."""
        return self.prefix / VERSIONS_FOLDER

    @property
    def is_updatable(self) -> bool:
        """Return whether `talaria update` can install versions next to this one."""
        return self.method in ("pip", "uv", "uv tool", "pipx")


def find_installation() -> Installation:
    """Return how the running Talaria was installed."""
    prefix = Path(sys.prefix)
    is_version = prefix.parent.name == VERSIONS_FOLDER
    anchor = prefix.parent.parent if is_version else prefix
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:  # run from its source folder, not installed
        return Installation("checkout", anchor, ".")
    origin = _read_origin(found)
    source = unquote(urlsplit(origin.url).path) if origin and origin.url.startswith("file:") else ""
    if origin is not None and origin.dir_info is not None and origin.dir_info.editable:
        return Installation("checkout", anchor, source)
    in_environment = is_version or sys.prefix != sys.base_prefix
    return Installation(detect_method(anchor, in_environment=in_environment), anchor, source)


def detect_method(prefix: Path, *, in_environment: bool) -> Method:
    """Return what made the environment at ``prefix``; ``in_environment`` is false for a Python of the system."""
    named = prefix / METHOD_FILE
    if named.is_file() and named.read_text(encoding="utf-8").strip() == "container":
        return "container"
    if prefix.parts[:3] == ("/", "nix", "store"):
        return "nix"
    if "Cellar" in prefix.parts:
        return "homebrew"
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    if not in_environment:
        return "system"
    if not _is_made_by_uv(prefix):
        return "pip"
    return "uvx" if any(part.startswith(("archive-v", "environments-v")) for part in prefix.parts) else "uv"


def own_command() -> tuple[str, ...]:
    """Return the command that starts Talaria: its launcher, which follows updates, or else this Python."""
    installation = find_installation()
    if installation.is_updatable and os.access(installation.launcher, os.X_OK):
        return (str(installation.launcher),)
    return sys.executable, "-m", "talaria"


def restart_command() -> list[str]:
    """Return the command that runs the arguments of this process again, with the current version."""
    command = own_command()
    return [*command, *sys.argv[1:]] if len(command) == 1 else [sys.executable, *sys.orig_argv[1:]]


class Installer(Struct, frozen=True):
    """Installer of packages for one Python: pip or uv; ``program`` is its command line up to the subcommand."""

    name: Literal["pip", "uv"]
    program: tuple[str, ...]
    python: str

    @property
    def install_command(self) -> tuple[str, ...]:
        """The command that installs packages, without their names."""
        if self.name == "uv":
            return (*self.program, "pip", "install", "--python", self.python)
        target = () if self.program[0] == self.python else ("--python", self.python)
        return (*self.program, *target, "install")

    def install(self, *arguments: str) -> None:
        """Install packages; raises `Refused` with the end of the installer's output if that fails."""
        self._run([*self.install_command, *arguments])

    def make_environment(self, folder: Path) -> "Installer":
        """Create an empty environment with the same Python; return its installer."""
        base = str(getattr(sys, "_base_executable", sys.executable))
        if self.name == "uv":
            self._run([*self.program, "venv", "--no-project", "--python", base, str(folder)])
        else:
            self._run([base, "-m", "venv", "--without-pip", str(folder)])
        return msgspec.structs.replace(self, python=str(folder / "bin" / "python"))

    def find_newest(self, requirement: str) -> str:
        """Return the newest version that the package index has for a requirement, for example ``name==1.2``."""
        if self.name == "uv":
            compile_ = [*self.program, "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--quiet"]
            pinned = self._run([*compile_, "--upgrade", "--refresh", "--python", self.python, "-"], requirement)
            return pinned.strip().rpartition("==")[2].split()[0]
        with tempfile.TemporaryDirectory(prefix="talaria-") as folder:
            report = Path(folder) / "report.json"
            options = ["--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", str(report)]
            self._run([*self.install_command, *options, requirement])
            return msgspec.json.decode(report.read_bytes(), type=_PipReport).install[0].metadata.version

    def _run(self, command: Sequence[str], given: str = "") -> str:
        """Run a command and return its output; raises `Refused` with the last lines of it and of its errors."""
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Refused(f"{self.name} can't be started: {error.strerror} ({command[0]}).") from error
        if done.returncode:
            lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()[-_LAST_LINES:]
            shown = "\n".join(f"  {line}" for line in lines)
            raise Refused(f"{self.name} failed with exit code {done.returncode}. Its output ends with:\n{shown}")
        return done.stdout


class _PipMetadata(Struct):
    version: str


class _PipItem(Struct):
    metadata: _PipMetadata


class _PipReport(Struct):
    install: list[_PipItem]


def find_installer(environment: Mapping[str, str]) -> Installer:
    """Return an installer for the running Python: uv where uv made the environment, else pip, else the other one.

    Environments made by uv have no pip. If there is no uv either, pip is added to the environment from the copy that
    every Python has.
    """
    installation = find_installation()
    uv = find_uv(environment)
    if uv and installation.method in ("uv", "uv tool", "uvx"):
        return Installer("uv", (uv,), sys.executable)
    for owner in dict.fromkeys((sys.executable, str(installation.prefix / "bin" / "python"))):
        if _has_pip(owner):
            return Installer("pip", (owner, *_PIP), sys.executable)
    if uv:
        return Installer("uv", (uv,), sys.executable)
    added = subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, text=True, check=False)
    if added.returncode:
        raise Refused(
            f"The environment at {sys.prefix} has no pip, and uv isn't on the PATH. Install uv, or add pip to the"
            " environment, and try again."
        )
    return Installer("pip", (sys.executable, *_PIP), sys.executable)


def find_uv(environment: Mapping[str, str]) -> str:
    """Return the path of uv, on the PATH or where its installer puts it; empty if there is none."""
    found = environment.get("UV") or shutil.which("uv", path=environment.get("PATH", os.defpath))
    home = Path(environment.get("HOME") or Path.home())
    candidates = (home / path for path in _UV_PLACES)
    return found or next((str(path) for path in candidates if os.access(path, os.X_OK)), "")


def _has_pip(python: str) -> bool:
    try:
        done = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _is_made_by_uv(prefix: Path) -> bool:
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _read_origin(found: Distribution) -> _Origin | None:
    text = found.read_text("direct_url.json")
    try:
        return msgspec.json.decode(text, type=_Origin) if text else None
    except msgspec.DecodeError:
        return None


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
