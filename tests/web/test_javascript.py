"""JavaScript modules of the web app: types, style and unit tests, by the `deno` of the development environment."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DENO = Path(sys.executable).with_name("deno")
FOLDERS = ("src/talaria/web/static/js", "tests/web/js")

pytestmark = pytest.mark.skipif(not DENO.exists(), reason="The `deno` wheel has no build for this system.")


@pytest.mark.parametrize(
    "arguments",
    [("fmt", "--check"), ("lint",), ("check", *FOLDERS), ("test", "--no-check", "tests/web/js")],
    ids=lambda arguments: arguments[0],
)
def test_javascript(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([DENO, *arguments, "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
