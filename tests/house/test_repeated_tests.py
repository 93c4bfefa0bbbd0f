"""Failed tests are repeated in CI: those that pass every repetition are reported as flaky, others fail the run."""

from pathlib import Path

import pytest
from tests.app import warm_program

from talaria.settings.environment import process_environment

pytestmark = pytest.mark.timeout(300)
CONFIG = '[tool.pytest.ini_options]\naddopts = "-q{}"\n'
FLAKY = """
from pathlib import Path

def run_number(name):
    runs = Path(__file__).with_name(f"{name}.runs")
    with runs.open("a") as file:
        file.write("x")
    return len(runs.read_text())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a test that passes; a worker, which takes as long as the rest, is in the options of few tests."""
    (tmp_path / "pyproject.toml").write_text(CONFIG.format(""))
    (tmp_path / "test_sound.py").write_text("def test_sound():\n    pass\n")
    return tmp_path


def add_test(folder: Path, name: str, condition: str, count: int = 1) -> None:
    """Write tests that pass where ``condition`` holds, with ``run`` as the number of the run, from 1."""
    tests = [
        f"def test_{name}_{number}():\n    run = run_number('{name}_{number}')\n    assert {condition}\n"
        for number in range(count)
    ]
    (folder / f"test_{name}.py").write_text("\n".join([FLAKY, *tests]))


def runs(folder: Path, name: str) -> int:
    return len((folder / f"{name}.runs").read_text())


def check(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the tests of a folder as CI does; return the exit code and the lines that were printed."""
    env = {name: value for name, value in process_environment().items() if not name.startswith("PYT")}
    code, out, _ = warm_program.run(
        ["-p", "xdist", "-p", "no:cacheprovider", *arguments],
        env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # starts in a fifth of the time
        cwd=folder,
        module="scripts.repeat_failed_tests",
    )
    return code, out.splitlines()


def test_passing_tests_run_once(folder: Path) -> None:
    add_test(folder, "good", "run == 1")
    code, lines = check(folder)
    assert code == 0
    assert lines[-1].startswith("2 passed in ")
    assert runs(folder, "good_0") == 1


def test_test_that_passes_every_repetition_without_workers_is_flaky(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(CONFIG.format(" -n 1"))
    add_test(folder, "unlucky", "'PYTEST_XDIST_WORKER' not in __import__('os').environ")
    code, lines = check(folder, "-n", "1")
    assert code == 0
    assert lines[-2] == "flaky: test_unlucky.py::test_unlucky_0"
    assert lines[-1].startswith("1 passed, 1 flaky in ")
    assert runs(folder, "unlucky_0") == 4


def test_test_that_fails_one_repetition_fails_the_run(folder: Path) -> None:
    add_test(folder, "broken", "run == 2")
    fixture = "import pytest\n\n@pytest.fixture\ndef thing():\n    assert run_number('thing') > 1\n"
    (folder / "test_fixture.py").write_text(f"{FLAKY}\n{fixture}\ndef test_thing(thing):\n    pass\n")
    code, lines = check(folder)
    assert code == 1
    assert lines[-3:-1] == ["flaky: test_fixture.py::test_thing", "failed again: test_broken.py::test_broken_0"]
    assert lines[-1].startswith("1 failed, 1 passed, 1 flaky in ")
    assert (runs(folder, "broken_0"), runs(folder, "thing")) == (3, 4)


def test_five_tests_are_repeated(folder: Path) -> None:
    add_test(folder, "five", "False", count=5)
    code, lines = check(folder)
    assert (code, len([line for line in lines if line.startswith("failed again: ")])) == (1, 5)
    assert [runs(folder, f"five_{number}") for number in range(5)] == [2] * 5


def test_six_tests_are_not_repeated(folder: Path) -> None:
    add_test(folder, "six", "run > 1", count=6)
    code, lines = check(folder)
    assert code == 1
    assert "flaky: " not in "\n".join(lines)
    assert [runs(folder, f"six_{number}") for number in range(6)] == [1] * 6


def test_test_that_cannot_be_collected_fails_the_run_at_once(folder: Path) -> None:
    add_test(folder, "unlucky", "run > 1")
    (folder / "test_wrong.py").write_text("import no_such_module\n")
    for workers in ("0", "1"):
        code, lines = check(folder, "-n", workers)
        assert code != 0
        assert "flaky: " not in "\n".join(lines)


def test_crashed_worker_fails_the_run_at_once(folder: Path) -> None:
    add_test(folder, "crash", "run > 1 or __import__('os')._exit(3)")
    code, lines = check(folder, "-n", "1")
    assert code == 1
    assert "flaky: " not in "\n".join(lines)
    assert runs(folder, "crash_0") == 1
