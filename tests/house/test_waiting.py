"""Tests wait for conditions: `asyncio.sleep` with a duration needs a comment ``# real time: …`` with the reason."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tests.house.tree import files, name, nodes


def test_no_test_sleeps_without_a_reason() -> None:
    assert [message for path in files("tests", suffix=".py") for message in _unexplained(path)] == []


def _unexplained(path: Path) -> Iterator[str]:
    lines = path.read_text().splitlines()
    for node in nodes(path) if any("asyncio.sleep(" in line for line in lines) else ():
        if _is_sleep(node) and "# real time: " not in lines[node.lineno - 1]:
            yield f"{name(path)}:{node.lineno} sleeps; use talaria.testing.wait.until"


def _is_sleep(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _is(node.func, "asyncio.sleep") and not _is(node.args[0], "0")


def _is(node: ast.AST, code: str) -> bool:
    return isinstance(node, ast.Attribute | ast.Constant) and ast.unparse(node) == code
