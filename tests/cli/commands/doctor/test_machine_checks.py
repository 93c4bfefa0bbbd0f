"""Checks of the machine: versions, extras, disk and terminal."""

import tomllib

from tests.app.program import Program
from tests.cli.commands.doctor.doctor_report import found
from tests.house.tree import ROOT

from talaria.cli.commands.doctor.machine_checks import FIRST_PYTHON, FIRST_SQLITE, LAST_PYTHON


def test_installed_extras_are_reported_with_their_versions(program: Program) -> None:
    assert any(
        sentence.startswith("postgres: psycopg 3.")
        for _, sentence in found(program.run("doctor", "--offline"), "extras")
    )


def test_too_little_free_disk_is_a_warning(program: Program) -> None:
    seen = program.run("doctor", "--offline", env={"TALARIA__DOCTOR__MIN_FREE_MEGABYTES": "999999999"})
    assert seen.code == 0
    assert found(seen, "disk")[0][0] == "warning"
    assert "`doctor.min_free_megabytes` is 999999999" in seen.out


def test_output_encoding_other_than_utf8_is_a_warning(program: Program) -> None:
    seen = program.run("doctor", "--offline", env={"PYTHONIOENCODING": "latin-1"})
    assert found(seen, "terminal")[0][0] == "warning"
    assert "LC_ALL=C.UTF-8" in seen.out


def test_supported_versions_match_the_package_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    after = (LAST_PYTHON[0], LAST_PYTHON[1] + 1)
    assert project["requires-python"] == ">={}.{},<{}.{}".format(*FIRST_PYTHON, *after)
    assert f"apsw>={'.'.join(map(str, FIRST_SQLITE))}" in project["dependencies"]
