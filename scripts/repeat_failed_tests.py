"""Run pytest; repeat the tests that failed, each alone, and pass if every repetition passes.

    python -P scripts/repeat_failed_tests.py [arguments for pytest]

At most `MAX_REPEATED` tests are repeated, `REPETITIONS` times each, without xdist. More failures, a collection error,
a crashed worker or an internal error end the run at once with pytest's exit code. Tests that failed first and passed
every repetition are printed as ``flaky: <name>``.
"""

import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

MAX_REPEATED = 5
REPETITIONS = 3


class FailedTests:
    """Pytest plugin that records failed tests and failures that can't be repeated as a test."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.has_crash = False
        self.options: list[str] = []
        self.folder = ""
        self.counts: dict[str, int] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """Record how pytest was called, without the files and folders it was pointed at."""
        self.options = [one for one in config.invocation_params.args if one not in config.args]
        self.folder = str(config.rootpath)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed test. Xdist reports a test whose worker died with ``when`` set to ``???``."""
        if report.failed:
            self.has_crash |= report.when not in {"setup", "call", "teardown"}
            if report.nodeid not in self.names:
                self.names.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that could not be collected."""
        self.has_crash |= report.failed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Record how many tests did not fail."""
        self.counts = {one: len(terminalreporter.stats.get(one, ())) for one in ("passed", "skipped", "xfailed")}


def main(arguments: Sequence[str]) -> int:
    """Run the tests and repeat what failed; return the exit code."""
    started = time.monotonic()
    failed = FailedTests()
    code = int(pytest.main(list(arguments), plugins=[failed]))
    sys.stdout.flush()
    if code != pytest.ExitCode.TESTS_FAILED or failed.has_crash or not failed.names:
        return code
    if len(failed.names) > MAX_REPEATED:
        print(f"{len(failed.names)} tests failed; at most {MAX_REPEATED} are repeated")
        return code
    broken = [name for name in failed.names if not _passes_repeatedly(failed, name)]
    flaky = [name for name in failed.names if name not in broken]
    print(*(f"flaky: {name}" for name in flaky), *(f"failed again: {name}" for name in broken), sep="\n")
    counts = {"failed": len(broken), **failed.counts, "flaky": len(flaky)}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    print(f"{summary} in {time.monotonic() - started:.2f}s")
    return code if broken else 0


def _passes_repeatedly(failed: FailedTests, name: str) -> bool:
    for repetition in range(1, REPETITIONS + 1):
        print(f"== repetition {repetition} of {REPETITIONS}: {name}", flush=True)
        command = [sys.executable, "-m", "pytest", *failed.options, "-n", "0", name]
        if subprocess.run(command, cwd=failed.folder, check=False).returncode != 0:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
