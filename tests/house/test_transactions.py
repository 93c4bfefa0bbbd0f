"""Pure transactions: a function that runs in a transaction may run again, so it changes nothing but the store."""

import ast
from collections.abc import Iterator, Sequence

import pytest
from tests.house.tree import files, name, nodes

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def test_transactions_change_nothing_but_the_store() -> None:
    found = [
        f"{name(path)}:{line}: {what}" for path in files("src", suffix=".py") for line, what in _effects(nodes(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "self.count = 1",
        "self.count += 1",
        "self.first, rest = tx.read()",
        "self.seen[key] = 1",
        "other.count = 1",
        "found[key] = 1",
        "found[:] = tx.read()",
        "del self.seen[key]",
        "nonlocal count\n        count = 1",
    ],
)
def test_effects_in_a_transaction_are_detected(line: str) -> None:
    inner = f"    def inner(tx):\n        {line}\n    store.write(inner)\n"
    outer = f"def outer(self, store, other, key):\n    found, count = [], 0\n{inner}"
    assert list(_effects(list(ast.walk(ast.parse(outer)))))
    assert not list(_effects(list(ast.walk(ast.parse(outer.replace(line, "found = {}; found[key] = tx.read()"))))))


def test_transaction_function_is_recognised_by_its_parameter_type() -> None:
    source = "def begin(work: str, tx: Transaction) -> None:\n    work.state = 1\n"
    assert list(_effects(list(ast.walk(ast.parse(source)))))


def _effects(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the assignments in transactions that reach outside: attributes, items of outer values, outer names."""
    passed = set(_passed_to_write(tree))
    for node in tree:
        if isinstance(node, Function) and (_takes_transaction(node) or node in passed or _name_of(node) in passed):
            own = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            for one in ast.walk(node):
                if isinstance(one, ast.Nonlocal | ast.Global) or _reaches_outside(one, own):
                    yield getattr(one, "lineno", 0), ast.unparse(one)


def _reaches_outside(node: ast.AST, own: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Subscript):
        is_own = isinstance(node.value, ast.Name) and node.value.id in own
        return not isinstance(node.ctx, ast.Load) and not is_own
    return False


def _takes_transaction(function: Function) -> bool:
    parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    types = [ast.unparse(one.annotation) if one.annotation is not None else "" for one in parameters]
    return any(one.strip('"') == "Transaction" for one in types)


def _passed_to_write(tree: Sequence[ast.AST]) -> Iterator[ast.AST | str]:
    """Yield the functions, or their names, that are passed to ``write`` of a store."""
    calls = [node for node in tree if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for call in calls:
        if ast.unparse(call.func).endswith("store.write"):
            for argument in call.args:
                if isinstance(argument, ast.Lambda):
                    yield argument
                elif isinstance(argument, ast.Name | ast.Attribute):
                    yield ast.unparse(argument).rpartition(".")[2]


def _name_of(function: Function) -> str | None:
    return None if isinstance(function, ast.Lambda) else function.name
