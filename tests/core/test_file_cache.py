"""File cache: a file is parsed again only after it has changed."""

import os
from pathlib import Path

import pytest

from talaria.core.files import FileCache

_LONG_AGO = 1_700_000_000


class _WordSplitter:
    """Parser that splits a text into words and counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, text: str) -> list[str]:
        self.count += 1
        return text.split()


def _write(file: Path, text: str, *, at: int = _LONG_AGO) -> str:
    file.write_text(text)
    os.utime(file, (at, at))
    return str(file)


def test_unchanged_file_is_parsed_once(tmp_path: Path) -> None:
    splitter = _WordSplitter()
    file_cache = FileCache(splitter)
    path = _write(tmp_path / "a", "one two")
    assert [file_cache.get(path), file_cache.get(path)] == [["one", "two"]] * 2
    assert splitter.count == 1


@pytest.mark.parametrize(("text", "at"), [("three four", _LONG_AGO), ("six two", _LONG_AGO + 1)])
def test_file_with_changed_size_or_mtime_is_parsed_again(tmp_path: Path, text: str, at: int) -> None:
    file_cache = FileCache(_WordSplitter())
    file_cache.get(_write(tmp_path / "a", "one two"))
    assert file_cache.get(_write(tmp_path / "a", text, at=at)) == text.split()


def test_file_replaced_by_rename_is_parsed_again(tmp_path: Path) -> None:
    file_cache = FileCache(_WordSplitter())
    path = _write(tmp_path / "a", "one two")
    file_cache.get(path)
    _write(tmp_path / "b", "six two")
    (tmp_path / "b").replace(path)
    assert file_cache.get(path) == ["six", "two"]


def test_recently_modified_file_is_not_cached(tmp_path: Path) -> None:
    splitter = _WordSplitter()
    file_cache = FileCache(splitter)
    file = tmp_path / "a"
    file.write_text("one")
    assert [file_cache.get(str(file)), file_cache.get(str(file))] == [["one"]] * 2
    assert splitter.count == 2


def test_missing_and_irregular_files_return_none(tmp_path: Path) -> None:
    file_cache = FileCache(_WordSplitter())
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe", Path(_write(tmp_path / "a", "")) / "below"):
        assert file_cache.get(str(path)) is None


def test_long_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    assert FileCache(_WordSplitter(), most=5).get(_write(tmp_path / "a", "one two")) == ["one", "t"]


def test_oldest_entries_are_evicted_from_a_full_cache(tmp_path: Path) -> None:
    splitter = _WordSplitter()
    file_cache = FileCache(splitter)
    paths = [_write(tmp_path / str(number), "one") for number in range(600)]
    for path in (*paths, paths[-1], paths[0]):
        file_cache.get(path)
    assert splitter.count == 601
