"""Imports: no private names of other modules, no hidden cycles, no tiny modules without a reason.

The lists are ratchets: an entry that is no longer needed fails too.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house.tree import ROOT, files, nodes

SOURCE = ROOT / "src"
MOST_SMALL_LINES = 40
# Small modules with one importer next to them, and why they stand alone.
SMALL_MODULES = {
    "talaria.app.command_line.spec": "loaded by completion, without the services",
    "talaria.platforms.xmpp.servers": "loaded if DNS has to find the server",
}
# Modules that need a type of one that imports them: the application is passed to the parts that it builds.
HIDDEN_CYCLES = {
    ("talaria", "talaria.app.library"),
    ("talaria.app.gateway.media", "talaria.app.application"),
    ("talaria.app.media_models", "talaria.app.application"),
    ("talaria.app.media_models", "talaria.app.application"),
    ("talaria.app.jobs", "talaria.app.application"),
    ("talaria.app.session.agent_spec", "talaria.app.application"),
    ("talaria.app.session.build", "talaria.app.application"),
    ("talaria.app.session.delegation_proxy", "talaria.app.application"),
    ("talaria.runtime.live.control", "talaria.runtime.live.feed"),
}


class Imports(NamedTuple):
    """The modules of ours that a module imports: when it runs or later, for types only, and names from them."""

    modules: set[str]
    for_types: set[str]
    names: set[tuple[str, str]]


def test_no_private_name_of_another_module_is_imported() -> None:
    assert [
        f"{module}: {source}.{name}"
        for module, found in sorted(imports().items())
        for source, name in sorted(found.names)
        if name.startswith("_") and not name.startswith("__")
    ] == []


def test_no_import_for_types_hides_a_cycle() -> None:
    found = imports()
    hidden = {
        (module, target)
        for module, one in found.items()
        for target in one.for_types
        if target in found and _reaches(target, module)
    }
    assert hidden == HIDDEN_CYCLES, f"import it, or remove its entry: {hidden ^ HIDDEN_CYCLES}"


def test_a_small_module_with_one_importer_next_to_it_has_a_reason() -> None:
    importers = defaultdict(set)
    for module, found in imports().items():
        for target in found.modules | found.for_types:
            importers[target].add(module)
    small = {
        module
        for module, path in modules().items()
        if path.stem not in {"__init__", "__main__"}
        and len(path.read_text().splitlines()) < MOST_SMALL_LINES
        and len(importers[module]) == 1
        and next(iter(importers[module])).rpartition(".")[0] == module.rpartition(".")[0]
    }
    assert small - SMALL_MODULES.keys() == set(), "merge these with their importer"
    assert SMALL_MODULES.keys() - small == set(), (
        "remove these entries: the modules are larger, elsewhere, or used by more"
    )


def test_private_imports_and_type_imports_are_detected() -> None:
    source = "from talaria.core.ids import _new\nif TYPE_CHECKING:\n    import talaria.app\n"
    found = _read_imports(ast.parse(source))
    assert found == Imports({"talaria.core.ids"}, {"talaria.app"}, {("talaria.core.ids", "_new")})


@cache
def modules() -> Mapping[str, Path]:
    """Return all modules of the package by name."""
    found = {}
    for path in files("src", suffix=".py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> Mapping[str, Imports]:
    """Return the imports of all modules."""
    return {module: _read_imports(nodes(path)[0]) for module, path in modules().items()}


def _read_imports(tree: ast.AST) -> Imports:
    found = Imports(set(), set(), set())
    for node, is_for_types in _import_nodes(tree, is_for_types=False):
        targets = found.for_types if is_for_types else found.modules
        if isinstance(node, ast.Import):
            targets.update(one.name for one in node.names if one.name.partition(".")[0] == "talaria")
        elif node.module and node.module.partition(".")[0] == "talaria":
            for one in node.names:
                full = f"{node.module}.{one.name}"
                targets.add(full if full in modules() else node.module)
                if full not in modules():
                    found.names.add((node.module, one.name))
    return found


def _import_nodes(tree: ast.AST, *, is_for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_for_types
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            is_guard = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            yield from _import_nodes(node, is_for_types=is_for_types or is_guard)


def _reaches(start: str, target: str) -> bool:
    """Return whether importing one module, with all that it imports later, can import another."""
    pending, seen = [start], set()
    while pending:
        module = pending.pop()
        if module == target:
            return True
        if module not in seen and module in imports():
            seen.add(module)
            pending += imports()[module].modules
    return False
