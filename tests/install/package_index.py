"""A package index on loopback, with wheels made from this environment, and Talaria in several versions.

The wheels of dependencies are packed from the files that are installed here, so nothing is downloaded.
"""

import base64
import hashlib
import marshal
import re
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

ROOT = Path(__file__).parents[2]
_EXCLUDED_FILES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
_UNCHECKED = (0b01).to_bytes(4, "little")  # flags of bytecode that is never compared with its source (PEP 552)
_NAME = re.compile(r"^[\w.-]+")


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, without a log."""

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


def write_pages(folder: Path) -> None:
    """Write the pages of a simple index for the wheels in a folder, and the metadata of each wheel."""
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            (folder / f"{wheel.name}.metadata").write_bytes(archive.read(name))
        page = folder / "simple" / normalize(wheel.name.split("-")[0]) / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as file:
            file.write(f'<a href="/{wheel.name}" data-core-metadata="true">{wheel.name}</a>\n')


@contextmanager
def served_index(folder: Path) -> Iterator[str]:
    """Serve a folder with a simple index; yield the address of the index."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def build_own_wheel(folder: Path) -> Path:
    """Build Talaria's wheel from this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("talaria_agent-*.whl"))


def derive_version(wheel: Path, version: str, changes: Mapping[str, Callable[[str], str]] = {}) -> Path:
    """Make a wheel of another version; ``changes`` edit files, a file that doesn't exist is empty before."""
    old = wheel.name.split("-")[1]
    changed = wheel.with_name(wheel.name.replace(old, version, 1))
    with zipfile.ZipFile(wheel) as source:
        files = {name: source.read(name) for name in source.namelist() if not name.endswith("/RECORD")}
    files = {name.replace(f"-{old}.dist-info", f"-{version}.dist-info"): data for name, data in files.items()}
    metadata = f"talaria_agent-{version}.dist-info/METADATA"
    edits = {
        "talaria/__init__.py": lambda text: text.replace(f'"{old}"', f'"{version}"', 1),
        metadata: lambda text: text.replace(f"Version: {old}", f"Version: {version}", 1),
        **changes,
    }
    for name, edit in edits.items():
        files.pop(cache_from_source(name), None)
        before = files.get(name, b"").decode()
        assert edit(before) != before, f"{name} is unchanged"
        files[name] = edit(before).encode()
    _write_wheel(changed, files, f"talaria_agent-{version}.dist-info")
    return changed


def pack_requirements(wheel: Path) -> None:
    """Pack the installed requirements of a wheel, recursively, into the folder of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        pending = re.findall(r"^Requires-Dist: (.+)$", archive.read(name).decode(), re.MULTILINE)
    seen: set[str] = set()
    while pending:
        requirement = pending.pop()
        found = _NAME.match(requirement)
        if found is None or "extra ==" in requirement or normalize(found[0]) in seen:
            continue
        seen.add(normalize(found[0]))
        try:
            required = distribution(found[0])
        except PackageNotFoundError:
            assert ";" in requirement, f"{found[0]} isn't installed here; run `make test`."
            continue  # its marker excludes this system
        pack(required, wheel.parent)
        pending += required.requires or []


def pack(found: Distribution, folder: Path) -> Path:
    """Make a wheel from an installed package."""
    stem = f"{found.name.replace('-', '_')}-{found.version}"
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)$", found.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(dict.fromkeys(column)) for column in zip(*tags, strict=True))
    files = {}
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        if (
            ".." not in file.parts
            and "__pycache__" not in file.parts
            and file.name not in _EXCLUDED_FILES
            and path.is_file()
        ):
            files[file.as_posix()] = path.read_bytes()
            if path.suffix == ".py":
                files |= _read_bytecode(file.as_posix(), path)
    info = next(name.partition("/")[0] for name in files if ".dist-info/" in name)
    wheel = folder / f"{stem}-{tag}.whl"
    _write_wheel(wheel, files, info)
    return wheel


def add_bytecode(wheel: Path) -> None:
    """Add the bytecode of this checkout to its wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    for name in [one for one in files if one.endswith(".py")]:
        files |= _read_bytecode(name, ROOT / "src" / name)
    _write_wheel(wheel, files, next(name.partition("/")[0] for name in files if ".dist-info/" in name))


def _read_bytecode(name: str, path: Path) -> dict[str, bytes]:
    """Return the bytecode of a module, valid for any copy of it: each installation would compile it again."""
    cached = Path(cache_from_source(str(path)))
    if cached.exists() and cached.stat().st_mtime >= path.stat().st_mtime:
        code = cached.read_bytes()[16:]
    else:
        try:
            with warnings.catch_warnings(action="ignore"):
                code = marshal.dumps(compile(path.read_bytes(), name, "exec", dont_inherit=True))
        except SyntaxError:  # a template, or for another version of Python
            return {}
    return {cache_from_source(name): MAGIC_NUMBER + _UNCHECKED + bytes(8) + code}


def normalize(name: str) -> str:
    """Return the name of a package as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _write_wheel(path: Path, files: Mapping[str, bytes], info: str) -> None:
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
