"""Names: modules named after nouns, unique classes, and the terms of the glossary.

Ratchets are numbers that may only fall. When a change lowers one, write the new number here.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, files, name, nodes

PACKAGE = ROOT / "src" / "talaria"
# Nouns and established terms that end in -ing.
GERUNDS = {
    "formatting", "incoming", "outgoing", "pairing",
    "pricing", "routing",
}  # fmt: skip
NO_NOUNS = {"helper", "helpers", "util", "utils", "common", "misc"}
# Folders with modules of the same structure, so that the same names are fine.
ADAPTERS = ("platforms", "providers", "tools", "testing")
ANATOMY = {
    "adapter", "client", "command", "errors", "factory", "files", "formatting", "incoming", "media", "outgoing",
    "receiver", "routes", "sender", "server", "settings", "tool", "wire", "__init__", "__main__",
}  # fmt: skip
# The private idiom of earlier versions; docs/explanation/glossary.md has the terms to use instead.
IDIOM = {
    "anew", "beside", "courier", "crew", "desk", "doorman", "errand", "farewell", "farewells", "heed",
    "heeding", "keeper", "letter", "letters", "manner", "overhear", "overheard", "rack", "rung", "seat", "shelf",
    "shelter", "sitting", "surroundings", "told", "vigil", "whereabouts", "whoever", "wish", "workbench", "workplace",
}  # fmt: skip
IDIOM_OF_TESTS = (IDIOM | {"figures", "mending", "somebody", "vain"}) - {"letter", "letters"}
# A test name has a subject that a reader can picture.
TEST_NAME_WITHOUT_SUBJECT = re.compile(
    r"^test_(what|whatever|who|whoever|nobody|somebody|something|it|they|those)_"
    r"|_(is|are|was|were)_(said|heard)(_|$)"
    r"|_(heard|nobody|whatever)(_|$)"
)
# A private function named only after its result says neither what it does nor to what: `_told`, `_listed`, `_shown`.
PARTICIPLE = re.compile(
    r"_([a-z]+(?<!e)ed|begun|bound|built|chosen|done|drawn|found|given|heard|held|kept|known|left|made|seen|sent|shown"
    r"|spoken|told|written)"
)
MOST_IDIOM_NAMES = 0
MOST_REPEATED_CLASSES = 0


def modules() -> Iterator[Path]:
    return files("src", suffix=".py")


def test_no_module_is_named_after_a_gerund() -> None:
    named = {name(path): path.stem.rpartition("_")[2] for path in modules()}
    assert [path for path, stem in named.items() if stem.endswith("ing") and stem not in GERUNDS] == []


def test_no_module_is_named_helper_or_util() -> None:
    stems = {name(path): path.stem for path in modules()}
    assert [path for path, stem in stems.items() if stem in NO_NOUNS or stem.endswith("_mixin")] == []


def test_module_name_is_used_in_at_most_four_packages() -> None:
    packages = defaultdict(set)
    for path in modules():
        package = path.relative_to(PACKAGE).parts[0]
        if path.stem not in ANATOMY and package not in ADAPTERS:
            packages[path.stem].add(package)
    assert {stem: sorted(found) for stem, found in packages.items() if len(found) > 4} == {}


def test_public_class_names_are_unique() -> None:
    owners = defaultdict(list)
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] in ADAPTERS:
            continue
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(name(path))
    repeated = {owner: paths for owner, paths in owners.items() if len(paths) > 1}
    assert len(repeated) <= MOST_REPEATED_CLASSES, repeated


def test_no_name_uses_the_old_idiom() -> None:
    found = [f"{name(path)}: {one}" for path in modules() for one in _public_names(path) if IDIOM & set(_words(one))]
    assert len(found) <= MOST_IDIOM_NAMES, found


def test_no_private_function_is_named_with_a_participle() -> None:
    assert [
        f"{name(path)}: {node.name}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and not node.decorator_list
    ] == []


def test_no_test_uses_the_old_idiom_in_its_name() -> None:
    assert [f"{path}: {test}" for path, test in _test_names() if IDIOM_OF_TESTS & set(test.split("_"))] == []


def test_every_test_name_has_a_subject() -> None:
    assert [f"{path}: {test}" for path, test in _test_names() if TEST_NAME_WITHOUT_SUBJECT.search(test)] == []


def _test_names() -> Iterator[tuple[str, str]]:
    """Yield every test of the repository and of the test suites that it ships, with its file."""
    for path in files("tests", "src/talaria/testing", suffix=".py"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield name(path), node.name


def _public_names(path: Path) -> Iterator[str]:
    yield path.stem
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name


def _words(identifier: str) -> list[str]:
    """Return the words of an identifier in either spelling, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)]
