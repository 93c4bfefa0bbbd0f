"""Small files, functions, classes and contracts: section 3 of the style."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.tree import ROOT, files, name, nodes

MOST_POSITIONAL = 7
MOST_KEYWORDS = 12
MOST_OUTSIDE_ASSIGNMENTS = 39
# Parsers of argparse, records of logging, the input line of prompt_toolkit, parameters of the embedded model.
OBJECTS_OF_LIBRARIES = (
    "parser.",
    "arguments.",
    "logger.",
    "record.",
    "self.buffer.",
    "app.",
    "parameters.",
    "sys.",
    "notice.",
    "server.",
    "self.line.buffer.",
)

# Adapters set attributes of their libraries' objects; parsers have a state that the code around it changes.
EXEMPT_FROM_ASSIGNMENTS = tuple(
    f"src/talaria/{folder}/"
    for folder in ("platforms", "providers", "testing", "agent/approval", "cli/markdown", "tools/files")
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(body: list[ast.stmt]) -> Iterator[Function]:
    for statement in body:
        if isinstance(statement, Function):
            yield statement


def is_property_or_overload(function: Function) -> bool:
    return any(ast.unparse(one).endswith(("overload", ".setter")) for one in function.decorator_list)


def public_methods(owner: ast.ClassDef) -> set[str]:
    return {
        one.name for one in functions(owner.body) if not one.name.startswith("_") and not is_property_or_overload(one)
    }


def classes(folder: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in files(folder, suffix=".py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {
        name(path): len(path.read_text().splitlines()) for path in files("src", "bench", "scripts", suffix=".py")
    }
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_no_function_is_longer_than_50_lines() -> None:
    long = [
        f"{name(path)}: {node.name}"
        for path in files("src", "bench", "scripts", suffix=".py")
        for node in nodes(path)
        if isinstance(node, Function) and node.end_lineno and node.end_lineno - node.lineno >= 50
    ]
    assert long == []


def test_no_class_has_more_than_15_public_methods() -> None:
    assert [f"{name(path)}: {one.name}" for path, one in classes("src") if len(public_methods(one)) > 15] == []


def test_no_constructor_takes_too_many_arguments() -> None:
    assert [
        f"{name(path)}: {owner.name}"
        for path, owner in classes("src")
        for method in functions(owner.body)
        if method.name == "__init__"
        and (len(method.args.args) > 1 + MOST_POSITIONAL or len(method.args.kwonlyargs) > MOST_KEYWORDS)
    ] == []


def test_no_contract_has_more_than_8_methods() -> None:
    assert [
        f"{name(path)}: {owner.name}"
        for path, owner in classes("src/talaria/contracts")
        if any(ast.unparse(base).startswith("Protocol") for base in owner.bases) and len(public_methods(owner)) > 8
    ] == []


def test_no_attribute_is_assigned_from_another_module() -> None:
    """Objects change themselves; others call their methods. Classes of the same module may assign attributes."""
    found = [
        f"{name(path)}:{line}: {target}"
        for path in files("src", suffix=".py")
        if not name(path).startswith(EXEMPT_FROM_ASSIGNMENTS)
        for line, target in _outside_assignments(path)
    ]
    assert len(found) <= MOST_OUTSIDE_ASSIGNMENTS, found


def _outside_assignments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield assignments to attributes that no class of this module declares, of objects other than ``self``."""
    tree = nodes(path)
    own = {
        node.attr
        for node in tree
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    }
    own |= {
        statement.target.id
        for node in tree
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not _is_self(node.value):
            target = ast.unparse(node)
            if node.attr not in own and not target.startswith(OBJECTS_OF_LIBRARIES):
                yield node.lineno, target


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


@pytest.mark.parametrize(("document", "ceiling"), [("README.md", 150), ("ARCHITECTURE.md", 200)])
def test_readme_and_architecture_stay_short(document: str, ceiling: int) -> None:
    assert len((ROOT / document).read_text().splitlines()) <= ceiling
