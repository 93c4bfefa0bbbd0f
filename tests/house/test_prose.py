"""Plain English in documents and in the texts of the program; docs/explanation/glossary.md has the terms."""

import ast
import re
from pathlib import Path

import pytest
from tests.house.tree import ROOT, files, name, nodes

# Phrases that are never right in this project's prose; section 1 of the language rules has replacements.
BANNED_PHRASES = (
    "goes on",
    "go on with",
    "going on with",
    "gone on with",
    "went on with",
    "is told",
    "are told",
    "was told",
    "were told",
    "be told",
    "told of",
    "tells of",
    "what waits",
    "whatever waits",
    "behind the reply",
    "behind a reply",
    "behind the turn",
    "behind each turn",
    "behind the end",
    "beside",
    "anew",
    "let go of",
    "lets go of",
    "letting go of",
    "whoever",
    "whomever",
    "work off",
    "works off",
    "worked off",
    "see to it",
    "sees to",
    "seen to",
    "heed",
    "heeds",
    "heeding",
    "is no key",
    "for good",
    "for want of",
    "again and again",
    "ever more seldom",
    "look after",
    "looks after",
    "looked after",
    "handed on",
    "made up for",
    "mend",
    "mended",
    "in vain",
    "of one's own",
    "shall",
    "go on here",
    "came along",
    "comes along",
    "is looked at",
    "is looked for",
    "are looked for",
    "not looked for",
    "not written down",
    "worked at",
    "those there are",
    "to be had",
    "cannot be had",
    "let in",
    "lets in",
    "is no name",
    "is no code",
    "is no number",
    "is no time",
    "stands here",
    "needs words",
    "such as",
    "in the manner of",
    "nobody was told",
)

GENERATED = {"docs/reference/commands.md", "docs/reference/settings.md", "docs/reference/slash-commands.md"}
DOCUMENTS = [path for path in (*sorted(ROOT.glob("*.md")), *files("docs", suffix=".md")) if name(path) not in GENERATED]
_BANNED = re.compile(
    r"\b(" + "|".join(phrase.replace(" ", r"\s+") for phrase in BANNED_PHRASES) + r")\b", re.IGNORECASE
)


def find_banned_phrases(text: str) -> list[str]:
    """Return the banned phrases of a text, in order."""
    return [" ".join(found.lower().split()) for found in _BANNED.findall(text)]


def string_literals(path: Path) -> list[str]:
    """Return the string literals of a Python file: texts, docstrings and the fixed parts of f-strings."""
    return [node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def docstrings(path: Path) -> list[str]:
    """Return the docstrings of a Python file."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [ast.get_docstring(node) or "" for node in nodes(path) if isinstance(node, documented)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_documents_contain_no_banned_phrase(path: Path) -> None:
    assert find_banned_phrases(path.read_text()) == []


def test_texts_and_docstrings_of_the_program_contain_no_banned_phrase() -> None:
    found = {
        name(path): [phrase for text in string_literals(path) for phrase in find_banned_phrases(text)]
        for path in (*files("src", suffix=".py"), *files("bench", suffix=".py"), *files("scripts", suffix=".py"))
    }
    assert {path: phrases for path, phrases in found.items() if phrases} == {}


def test_docstrings_of_tests_contain_no_banned_phrase() -> None:
    found = {
        name(path): [phrase for text in docstrings(path) for phrase in find_banned_phrases(text)]
        for path in files("tests", suffix=".py")
    }
    assert {path: phrases for path, phrases in found.items() if phrases} == {}


def test_banned_phrases_are_found_across_lines_and_as_whole_words_only() -> None:
    assert find_banned_phrases("The turn goes\non, and Whoever waits is told.") == ["goes on", "whoever", "is told"]
    assert find_banned_phrases("The amendments; run_beside_peer(quick); a shallow copy.") == []
