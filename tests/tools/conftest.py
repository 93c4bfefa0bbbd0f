"""Check for leaked subprocesses: the test that leaves one open fails, not a later one."""

from collections.abc import Iterator

import pytest
from tests.open_subprocesses import OpenSubprocesses

SUBPROCESSES = OpenSubprocesses("tests/tools/")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Name the test that leaves a subprocess open when its event loop ends."""
    yield
    SUBPROCESSES.check()
