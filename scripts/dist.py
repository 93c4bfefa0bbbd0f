"""Build the wheel and the sdist into ``dist/``, check both, and write a software bill of materials.

    python -m scripts.dist [--into FOLDER]

Fails if the wheel lacks a file of the package or has another one, is larger than 3 MB, differs from a wheel built from
the sdist, or if its metadata or the bill of materials is invalid.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from scripts.sbom import build_sbom, find_problems

from talaria import __version__

ROOT = Path(__file__).parent.parent
LARGEST_WHEEL = 3_000_000
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_SOURCE_DATE_EPOCH = "1577836800"  # 1 January 2020, so that the same source gives the same bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the files, check them, print sizes and hashes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER", help="folder for the files")
    target = parser.parse_args(arguments).into
    target.mkdir(parents=True, exist_ok=True)
    wheel, sdist = build(ROOT, target)
    sbom = target / f"{wheel.name.split('-py3')[0]}.cdx.json"
    sbom.write_text(build_sbom(wheel))
    problems = [*check_wheel(wheel), *check_metadata(wheel), *check_sdist(sdist, wheel), *find_problems(sbom)]
    for problem in problems:
        print(f"make dist: {problem}", file=sys.stderr)
    for path in (wheel, sdist, sbom):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.name}  {path.stat().st_size / 1_000_000:.2f} MB  sha256:{digest}")
    return 1 if problems else 0


def build(source: Path, target: Path, *kinds: str) -> tuple[Path, Path]:
    """Build a wheel and an sdist from a source folder; return their paths."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    for kind in kinds or ("wheel", "sdist"):
        command += ["-t", kind]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _SOURCE_DATE_EPOCH}
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    name = f"{PROJECT['name'].replace('-', '_')}-{read_version(source)}"
    return target / f"{name}-py3-none-any.whl", target / f"{name}.tar.gz"


def read_version(source: Path) -> str:
    """Return the version that a source folder declares."""
    text = (source / "src" / "talaria" / "__init__.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


def check_wheel(wheel: Path) -> Iterator[str]:
    """Yield problems of the files in the wheel, which must be exactly those of the package."""
    expected = {path.relative_to(ROOT / "src").as_posix() for path in _package_files()}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    for name in sorted(expected - found):
        yield f"{wheel.name} lacks {name}"
    for name in sorted(found - expected):
        yield f"{wheel.name} has {name}, which isn't part of the package"
    if wheel.stat().st_size > LARGEST_WHEEL:
        yield f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {LARGEST_WHEEL:,}"


def check_metadata(wheel: Path) -> Iterator[str]:
    """Yield problems of the wheel's metadata."""
    metadata = _read_metadata(wheel)
    expected = {
        "Name": PROJECT["name"],
        "Version": __version__,
        "Summary": PROJECT["description"],
        "License-Expression": PROJECT["license"],
        "Description-Content-Type": "text/markdown",
    }
    for key, value in expected.items():
        if metadata[key] != value:
            yield f"the metadata has {key}: {metadata[key]}, not {value}"
    if set((metadata["Requires-Python"] or "").split(",")) != set(PROJECT["requires-python"].split(",")):
        yield f"the metadata requires Python {metadata['Requires-Python']}, not {PROJECT['requires-python']}"
    if set(metadata.get_all("Provides-Extra", [])) != set(PROJECT["optional-dependencies"]):
        yield "the extras in the metadata aren't those of pyproject.toml"
    for requirement in metadata.get_all("Requires-Dist", []):
        if "@" in requirement:
            yield f"the metadata requires a package from an address: {requirement}"
    with zipfile.ZipFile(wheel) as archive:
        entry_points = archive.read(f"{_info_folder(archive)}/entry_points.txt").decode()
    if f"talaria = {PROJECT['scripts']['talaria']}" not in entry_points:
        yield "the wheel has no command talaria"


def check_sdist(sdist: Path, wheel: Path) -> Iterator[str]:
    """Yield problems of the sdist: a wheel built from it must have the same bytes."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # none before Python 3.11.4
        archive.extractall(folder)
        source = Path(folder) / sdist.name.removesuffix(".tar.gz")
        rebuilt, _ = build(source, Path(folder) / "built", "wheel")
        if rebuilt.read_bytes() != wheel.read_bytes():
            yield f"{sdist.name} makes a wheel that differs from {wheel.name}"


def _package_files() -> Iterator[Path]:
    for path in (ROOT / "src" / "talaria").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _read_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return HeaderParser().parsestr(archive.read(f"{_info_folder(archive)}/METADATA").decode())


def _info_folder(archive: zipfile.ZipFile) -> str:
    return next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)


if __name__ == "__main__":
    sys.exit(main())
