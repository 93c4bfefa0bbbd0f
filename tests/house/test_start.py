"""What a command loads before it answers: the start stays fast because nothing unneeded comes in."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Program

HEAVY = {
    "apsw", "argparse", "asyncio", "contextlib", "dataclasses", "difflib", "inspect", "json", "logging", "msgspec",
    "pathlib", "psycopg", "tomlkit", "tomllib", "typing", "unicodedata",
}  # fmt: skip
NOT_FOR_LISTS = {"aiohttp", "asyncio", "difflib", "logging", "psycopg", "ssl", "subprocess", "tomlkit"}


def loaded(program: Program, *words: str) -> set[str]:
    """Return the names of all modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", TALARIA, *words],
        env=program.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["-h"], ["help"], []])
def test_short_answers_load_next_to_nothing(tmp_path: Path, words: list[str]) -> None:
    modules = loaded(Program(tmp_path), *words)
    assert "talaria.app.main" in modules
    assert modules & HEAVY == set()
    assert {one for one in modules if one.startswith("talaria.") and not one.startswith("talaria.app")} == set()


@pytest.mark.parametrize("words", [["sessions", "list"], ["profile", "list"], ["completion", "--values", "sessions"]])
def test_lists_load_nothing_they_do_not_need(tmp_path: Path, words: list[str]) -> None:
    modules = loaded(Program(tmp_path), *words)
    assert modules & NOT_FOR_LISTS == set()
    others = {"talaria.cli.doctor", "talaria.cli.backup", "talaria.storage.postgres"}
    assert {one for one in modules if one.startswith(tuple(others))} == set()
