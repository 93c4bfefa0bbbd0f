"""Edit tool on real files: exact and fuzzy replacement, and patches."""

import difflib
import random
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.core.errors import ToolFailed
from talaria.tools.files.edit import EditFile, EditFileArguments, apply_patch, replace_passage


class EditedFile:
    """A file and the edit tool for it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "code.py"
        self._call = call_from(folder)

    async def replace(self, old: str, new: str, *, everywhere: bool = False) -> str:
        arguments = EditFileArguments("code.py", old, new, everywhere)
        return (await EditFile().run(arguments, self._call)).text

    async def patch(self, patch: str) -> str:
        return (await EditFile().run(EditFileArguments("code.py", patch=patch), self._call)).text


@pytest.fixture
def file(tmp_path: Path) -> EditedFile:
    file = EditedFile(tmp_path)
    file.path.write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    return file


async def test_exact_passage_is_replaced_and_the_diff_returned(file: EditedFile) -> None:
    assert await file.replace("return 2", "return 22") == (
        "code.py:\n@@ -4,3 +4,3 @@\n \n def two():\n-    return 2\n+    return 22"
    )
    assert file.path.read_text() == "def one():\n    return 1\n\n\ndef two():\n    return 22\n"


async def test_passage_that_occurs_twice_is_refused_unless_everywhere_is_set(file: EditedFile) -> None:
    with pytest.raises(ToolFailed, match=r"matches 2 places \(lines 2, 6\)"):
        await file.replace("return", "yield")
    await file.replace("return", "yield", everywhere=True)
    assert file.path.read_text().count("yield") == 2


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        ("if x:\n        do()\n        go()\n", "if x:\n    do()\n    go()", "if x:\n    go()", "if x:\n    go()\n"),
        ("    a = 1\n    b = 2\n", "a = 1\nb = 2", "a = 1\nc = 3", "    a = 1\n    c = 3\n"),
        ("\ta = 1\n", "    a = 1", "    a = 2", "\ta = 2\n"),
        ("say(\u201chello\u201d)\n", 'say("hello")', 'say("bye")', 'say("bye")\n'),
        ("say('it\u2019s')\n", "it's", "it is", "say('it is')\n"),
        ("x  =  1 \ny\n", "x = 1\ny", "x = 2", "x = 2\n"),
        ("one   \ntwo\n", "one\ntwo", "three", "three\n"),
        ("a\n  b\nc\n", "\tb\n", "", "a\nc\n"),
    ],
)
def test_passage_matches_despite_different_whitespace_and_quotation_marks(
    text: str, old: str, new: str, result: str
) -> None:
    assert replace_passage(text, old, new) == result


def test_ambiguous_fuzzy_match_is_refused() -> None:
    with pytest.raises(ToolFailed, match="matches 2 places"):
        replace_passage("  a = 1\nx\n    a = 1\n", "a =  1", "b")


async def test_missing_passage_fails_and_shows_similar_lines(file: EditedFile) -> None:
    with pytest.raises(ToolFailed) as failed:
        await file.replace("def three():\n    return 1", "x")
    assert "Most similar:" in str(failed.value)
    assert "    5\tdef two():" in str(failed.value) or "    1\tdef one():" in str(failed.value)
    assert "def two" in file.path.read_text()


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("return 1", "return 1"), ("zzz qqq", "x")])
async def test_invalid_replacements_fail_without_changes(file: EditedFile, old: str, new: str) -> None:
    before = file.path.read_bytes()
    with pytest.raises(ToolFailed):
        await file.replace(old, new)
    assert file.path.read_bytes() == before


@pytest.mark.parametrize(
    ("raw", "changed"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\nend\r\n", b"\xef\xbb\xbfone\r\n2\r\n3\r\nend\r\n"),
        (b"one\ntwo\nend", b"one\n2\n3\nend"),
        ("one\ntwo\nend\n".encode("utf-16"), "one\n2\n3\nend\n".encode("utf-16")),
        (b"one\ntwo\n\xff\xfe caf\xe9\n", b"one\n2\n3\n\xff\xfe caf\xe9\n"),
        (b"one\r\ntwo\nend\n", b"one\r\n2\n3\nend\n"),
    ],
)
async def test_encoding_byte_order_mark_and_line_ends_are_preserved(
    file: EditedFile, raw: bytes, changed: bytes
) -> None:
    file.path.write_bytes(raw)
    await file.replace("two", "2\r\n3")
    assert file.path.read_bytes() == changed


async def test_file_in_another_encoding_is_edited_in_that_encoding(file: EditedFile) -> None:
    file.path.write_bytes("Привет, мир! Как дела?\r\n".encode("cp1251"))
    await file.replace("мир", "всё")
    assert file.path.read_bytes() == "Привет, всё! Как дела?\r\n".encode("cp1251")
    with pytest.raises(ToolFailed, match="The file is in cp1251, which has no '日'"):
        await file.replace("всё", "日本")
    assert file.path.read_bytes() == "Привет, всё! Как дела?\r\n".encode("cp1251")


async def test_a_binary_file_is_not_edited(file: EditedFile) -> None:
    file.path.write_bytes(b"a\0b")
    with pytest.raises(ToolFailed, match="not a text file"):
        await file.replace("a", "c")


async def test_patch_with_several_hunks_is_applied(file: EditedFile) -> None:
    await file.patch(
        "--- a/code.py\n+++ b/code.py\n@@ -1,2 +1,3 @@\n def one():\n+    # first\n     return 1\n"
        "@@ -5,2 +6,2 @@\n def two():\n-    return 2\n+    return 3\n"
    )
    assert file.path.read_text() == "def one():\n    # first\n    return 1\n\n\ndef two():\n    return 3\n"


@pytest.mark.parametrize(
    "patch",
    [
        "@@ -40,2 +40,2 @@\n def two():\n-    return 2\n+    return 3",  # moved
        "@@\n def two():\n-    return 2\n+    return 3",  # no numbers
        "@@ -5,2 +5,2 @@ def\n gone\n def two():\n-    return 2\n+    return 3\n other",  # context changed
        "@@ -5,2 +5,2 @@\n def two():  \n-        return 2\n+        return 3",  # blanks differ
        "@@ ... @@\n\n def two():\n-    return 2\n+    return 3",  # an empty line lost its blank
    ],
)
async def test_patch_applies_despite_moved_lines_or_different_whitespace(file: EditedFile, patch: str) -> None:
    await file.patch(patch)
    assert "return 3" in file.path.read_text()
    assert file.path.read_text().startswith("def one():\n    return 1\n\n\ndef two():\n")


@pytest.mark.parametrize(
    "patch",
    [
        "@@ -1 +1 @@\n-nothing like it at all\n+x",
        "@@\n-    return\n+    yield",
        "no patch",
        "@@ -1 +1 @@\n def one():",
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b",
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(file: EditedFile, patch: str) -> None:
    before = file.path.read_bytes()
    with pytest.raises(ToolFailed):
        await file.patch(patch)
    assert file.path.read_bytes() == before


def test_patch_decides_about_the_newline_at_the_end_of_the_file() -> None:
    note = "\\ No newline at end of file"
    assert apply_patch("a\n", f"@@ -1 +1 @@\n-a\n+b\n{note}") == "b"
    assert apply_patch("a", f"@@ -1 +1 @@\n-a\n{note}\n+b") == "b\n"
    assert apply_patch("a", f"@@ -1 +1 @@\n-a\n{note}\n+b\n{note}") == "b"
    assert apply_patch("", "@@ -0,0 +1,2 @@\n+a\n+b") == "a\nb\n"


def test_unified_diffs_apply_to_their_original() -> None:
    chance = random.Random(7)
    for _ in range(200):
        old = [f"{chance.randrange(12)}" for _ in range(chance.randrange(1, 40))]
        new = [line for line in old if chance.random() > 0.15]
        for _ in range(chance.randrange(4)):
            new.insert(chance.randrange(len(new) + 1), f"new {chance.randrange(5)}")
        if old == new or not new:
            continue
        patch = "\n".join(difflib.unified_diff(old, new, lineterm=""))
        assert apply_patch("\n".join(old) + "\n", patch) == "\n".join(new) + "\n"
