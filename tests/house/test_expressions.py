"""No regular expression of the source takes more than linear time on foreign text."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_no_expression_takes_more_than_linear_time() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.expressions"], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == []
