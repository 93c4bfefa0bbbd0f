"""First lines of docstrings: a noun or an imperative, and short."""

import ast
import re
from collections.abc import Iterator

import pytest
from tests.house.tree import files, name, nodes

MOST_WORDS = 20
RIDDLE = re.compile(r"(What|Who|Whose|Where|Whether|How)\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def first_lines() -> Iterator[tuple[str, str]]:
    for path in files("src", suffix=".py"):
        for node in nodes(path):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield f"{name(path)}: {getattr(node, 'name', 'module')}", text.partition("\n")[0]


def is_riddle(line: str) -> bool:
    return RIDDLE.match(line) is not None


def is_long(line: str) -> bool:
    return len(line.split()) > MOST_WORDS


def test_no_docstring_starts_as_a_riddle() -> None:
    assert [f"{location}: {line}" for location, line in first_lines() if is_riddle(line)] == []


def test_no_first_line_is_longer_than_20_words() -> None:
    assert [f"{location}: {line}" for location, line in first_lines() if is_long(line)] == []


@pytest.mark.parametrize("line", ["What arrives from a network.", "Whether it is idle.", "How many there are."])
def test_riddles_and_long_lines_are_detected(line: str) -> None:
    assert is_riddle(line)
    assert not is_riddle(f"Return {line.lower()}")
    assert is_long("word " * 21)
