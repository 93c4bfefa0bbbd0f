"""Small files, functions, classes and contracts: section 3 of the style."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.tree import ROOT, files, name, nodes

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


def test_no_constructor_takes_more_than_7_arguments() -> None:
    assert [
        f"{name(path)}: {owner.name}"
        for path, owner in classes("src")
        for method in functions(owner.body)
        if method.name == "__init__" and len([*method.args.args, *method.args.kwonlyargs]) > 1 + 7
    ] == []


def test_no_contract_has_more_than_6_methods() -> None:
    assert [
        f"{name(path)}: {owner.name}"
        for path, owner in classes("src/talaria/contracts")
        if any(ast.unparse(base).startswith("Protocol") for base in owner.bases) and len(public_methods(owner)) > 6
    ] == []


@pytest.mark.parametrize(("document", "ceiling"), [("README.md", 150), ("ARCHITECTURE.md", 200)])
def test_the_first_documents_stay_short(document: str, ceiling: int) -> None:
    assert len((ROOT / document).read_text().splitlines()) <= ceiling
