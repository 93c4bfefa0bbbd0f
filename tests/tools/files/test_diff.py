"""Diffs that people see of changed files, before and after the change."""

from pathlib import Path

import msgspec
from tests.tools.tool_calls import call_from

from talaria.core.text_diff import diff_texts
from talaria.tools.files.edit import EditFile, EditFileArguments, WriteFile, WriteFileArguments
from talaria.tools.workspace import LocalWorkspace


async def test_replacing_a_file_reports_a_diff_to_people_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    arguments = WriteFileArguments("a.txt", "one\nzwei\nthree\n")
    workspace = LocalWorkspace(tmp_path, {})
    expected = "@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three"
    change = WriteFile().proposed_action(arguments).change
    assert change is not None
    assert change.diff(workspace) == expected
    output = await WriteFile().run(arguments, msgspec.structs.replace(call_from(tmp_path), workspace=workspace))
    assert output.diff == expected
    assert "zwei" not in output.text


async def test_a_new_file_has_no_diff(tmp_path: Path) -> None:
    arguments = WriteFileArguments("new.txt", "one\n")
    assert not arguments.diff(LocalWorkspace(tmp_path, {}))
    assert not (await WriteFile().run(arguments, call_from(tmp_path))).diff


async def test_an_edit_shows_the_same_diff_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    arguments = EditFileArguments("a.txt", "two", "zwei")
    before = arguments.diff(LocalWorkspace(tmp_path, {}))
    assert before == "@@ -1,2 +1,2 @@\n one\n-two\n+zwei"
    assert (await EditFile().run(arguments, call_from(tmp_path))).diff == before


def test_an_edit_that_would_fail_has_no_diff(tmp_path: Path) -> None:
    assert not EditFileArguments("a.txt", "two", "zwei").diff(LocalWorkspace(tmp_path, {}))


def test_huge_changes_are_counted_instead_of_compared() -> None:
    old = "".join(f"old {number}\n" for number in range(3_000))
    new = "".join(f"new {number}\n" for number in range(4_000))
    assert diff_texts(old, new) == "@@ 3,000 lines replaced by 4,000 @@"


def test_long_diff_ends_with_the_number_of_omitted_lines() -> None:
    diff = diff_texts("", "".join(f"{'x' * 90} {number}\n" for number in range(1_000)))
    assert len(diff) < 41_000
    assert diff.endswith("more lines @@")
