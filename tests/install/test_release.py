"""`make dist`: built files and checks. `scripts/step.py`: output of a step of `make`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.dist import check_metadata, check_sdist, check_wheel, main
from scripts.sbom import find_problems
from tests.app.program import terminal_pair
from tests.install.package_index import ROOT, derive_version

from talaria import __version__

pytestmark = pytest.mark.slow
WHEEL = f"talaria_agent-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    assert main(["--into", str(folder)]) == 0
    return folder


def test_release_has_wheel_sdist_and_bill_of_materials(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    assert names == {WHEEL, f"talaria_agent-{__version__}.tar.gz", f"talaria_agent-{__version__}.cdx.json"}
    assert (dist / WHEEL).stat().st_size < 3_000_000
    sbom = json.loads((dist / f"talaria_agent-{__version__}.cdx.json").read_text())
    by_name = {one["name"]: one for one in sbom["components"]}
    assert {"msgspec", "uvicorn", "preact"} <= {name for name, one in by_name.items() if one["scope"] == "required"}
    assert by_name["discord.py" if "discord.py" in by_name else "discord-py"]["scope"] == "optional"
    assert by_name["msgspec"]["licenses"]


def test_release_checks_find_foreign_files_wrong_metadata_and_a_different_sdist(dist: Path) -> None:
    foreign = derive_version(dist / WHEEL, "0.0.1", {"talaria/secret.txt": lambda _: "x"})
    assert any("has talaria/secret.txt" in problem for problem in check_wheel(foreign))
    assert any("Version: 0.0.1" in problem for problem in check_metadata(foreign))
    assert list(check_sdist(dist / f"talaria_agent-{__version__}.tar.gz", foreign)) != []
    foreign.unlink()


def test_invalid_bill_of_materials_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cdx.json"
    broken.write_text('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "x"}]}')
    assert "is invalid" in find_problems(broken)[0]


def run_step(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "scripts/step.py"),
        str(tmp_path / "log/install.log"),
        "packages",
        sys.executable,
        "-c",
    ]
    return subprocess.run([*command, code], capture_output=True, text=True, check=False)


def test_step_shows_one_line_with_packages_and_size(tmp_path: Path) -> None:
    done = run_step(
        tmp_path, "print('Collecting one==1.0'); print('  Downloading one.whl (2.5 MB)'); print('Collecting two')"
    )
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
    assert done.stdout.startswith("== packages: 2 packages, 2 MB, ")
    assert "Collecting one" in (tmp_path / "log/install.log").read_text()


def test_failed_step_shows_the_end_of_the_log(tmp_path: Path) -> None:
    done = run_step(tmp_path, "import sys; print('ERROR: no such package'); sys.exit(3)")
    assert done.returncode == 3
    assert "failed with exit code 3" in done.stdout
    assert "ERROR: no such package" in done.stdout
    assert "install.log" in done.stdout.splitlines()[-1]


def test_step_on_a_terminal_ends_with_its_final_line(tmp_path: Path) -> None:
    with terminal_pair() as (person, screen):
        command = [sys.executable, str(ROOT / "scripts/step.py"), str(tmp_path / "install.log"), "packages", "true"]
        assert subprocess.run(command, stdout=screen, check=False).returncode == 0
        shown = os.read(person, 4096).decode()
    assert shown.rstrip().endswith("done\x1b[K")
