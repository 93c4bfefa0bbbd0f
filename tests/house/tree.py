"""The files of this repository, for tests of its source code."""

import ast
import gc
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("src", "tests", "bench", "scripts", "docs", "deploy", "requirements", ".ci")


def files(*folders: str, suffix: str = "") -> Iterator[Path]:
    """Yield every file in these folders, without Python's caches."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def all_files() -> Iterator[Path]:
    """Yield every file of the repository."""
    yield from files(*FOLDERS)
    yield from sorted(path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")


def name(path: Path) -> str:
    """Return the path of a file relative to the repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    """Return every node of a Python file, the module first; each file is parsed once per process."""
    gc.disable()  # a tree contains no garbage, and a collection takes longer than parsing
    try:
        return tuple(ast.walk(ast.parse(path.read_text())))
    finally:
        gc.freeze()
        gc.enable()
