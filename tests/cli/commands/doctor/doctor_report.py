"""Reports of the doctor, and the profile that it checks."""

import json
from pathlib import Path
from typing import Any

from tests.app.program import Outcome, Program

KEY = {"OPENAI_API_KEY": "sk-hidden-and-long-enough"}


def folder(program: Program) -> Path:
    path = program.home / "profiles" / "default"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def found(outcome: Outcome, check: str) -> list[tuple[str, str]]:
    """Return state and sentence of each line of one check."""
    lines = [line.split(maxsplit=2) for line in outcome.out.splitlines() if not line.startswith((" ", "→"))]
    return [(columns[0], columns[2]) for columns in lines if columns[1:2] == [check] and len(columns) == 3]


def by_check(outcome: Outcome) -> dict[str, Any]:
    return {result["check"]: result for result in json.loads(outcome.out)}
