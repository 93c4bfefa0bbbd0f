"""Talaria installed from an index into its own folders, as on a machine without a checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from tests.app.program import Outcome

from talaria.settings.environment import process_environment

TOOLS = Path(sys.executable).parent
METHODS = ("pip", "uv", "uv tool", "pipx")


def find_tool(name: str) -> str | None:
    """Return the path of uv or pipx: that of the development environment, or one on the PATH."""
    own = TOOLS / name
    return str(own) if own.exists() else shutil.which(name)


@dataclass
class InstalledProgram:
    """A home with an installation of Talaria in it; ``index`` is where packages come from, by way of ``uv_cache``."""

    home: Path
    index: str
    python: str = sys.executable
    uv_cache: Path | None = None
    command: Path = field(default=Path("talaria"))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a person who has uv and pipx, and no other packages than those of the index."""
        tools = self.home / "tools"
        if not tools.exists():
            tools.mkdir(parents=True)
            for name in ("uv", "uvx", "pipx"):
                if path := find_tool(name):
                    (tools / name).symlink_to(path)
        return {
            "PATH": f"{self.home / '.local/bin'}{os.pathsep}{tools}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(self.home),
            "TALARIA_HOME": str(self.home / "data"),
            "TERM": "xterm",
            "PIP_INDEX_URL": self.index,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_COMPILE": "false",  # how pip spells yes for an option that begins with "no"
            "PIP_PROGRESS_BAR": "off",
            "UV_DEFAULT_INDEX": self.index,
            "UV_CACHE_DIR": str(self.uv_cache or self.home / "cache-uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
            "PIPX_HOME": str(self.home / "pipx"),
            "PIPX_DEFAULT_PYTHON": self.python,
            **{name: value for name, value in process_environment().items() if name in ("LANG", "LD_LIBRARY_PATH")},
        }

    def install(self, method: str, requirement: str) -> None:
        """Install Talaria with one of `METHODS`."""
        venv = self.home / "venv"
        match method:
            case "pip":
                self._make_environment(venv)
                self._call(venv / "bin/python", "-m", "pip", "install", "--quiet", requirement)
            case "uv":
                self._call("uv", "venv", "--quiet", "--python", self.python, venv)
                self._call("uv", "pip", "install", "--quiet", "--python", venv / "bin/python", requirement)
            case "uv tool":
                self._call("uv", "tool", "install", "--quiet", "--python", self.python, requirement)
            case "pipx":
                self._call("pipx", "install", "--quiet", requirement)
        self.command = self.home / ".local/bin/talaria" if method in ("uv tool", "pipx") else venv / "bin/talaria"

    def run(self, *arguments: str) -> Outcome:
        """Run the installed program outside of any checkout."""
        done = subprocess.run(
            [self.command, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def configure(self, text: str) -> None:
        """Write the settings of the default profile."""
        folder = self.home / "data" / "profiles" / "default"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    @contextmanager
    def stopped_at_end(self) -> Iterator[None]:
        """Stop the gateway that the block leaves running."""
        try:
            yield
        finally:
            if self.command.exists():
                self.run("gateway", "stop")

    def _make_environment(self, venv: Path) -> None:
        """Make an environment with pip: a copy of this Python's, which costs less than the one of the interpreter."""
        if self.python != sys.executable or find_spec("pip") is None:
            self._call(self.python, "-m", "venv", venv)
            return
        self._call(self.python, "-m", "venv", "--without-pip", venv)
        (packages,) = venv.glob("lib/python*/site-packages")
        pip = distribution("pip")
        for name in ("pip", f"pip-{pip.version}.dist-info"):
            shutil.copytree(Path(str(pip.locate_file(name))), packages / name)

    def _call(self, program: str | Path, *arguments: str | Path) -> None:
        path = shutil.which(program, path=self.environment["PATH"]) or str(program)
        done = subprocess.run(
            [path, *map(str, arguments)],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
