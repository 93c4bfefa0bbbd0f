"""What was made of a file is made again only when the file has changed."""

import os
from pathlib import Path

import pytest

from talaria.core.files import FileCache

_LONG_AGO = 1_700_000_000


class _Words:
    """Splits a text into words, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, text: str) -> list[str]:
        self.count += 1
        return text.split()


def _write(file: Path, text: str, *, at: int = _LONG_AGO) -> str:
    file.write_text(text)
    os.utime(file, (at, at))
    return str(file)


def test_a_file_that_stays_the_same_is_read_once(tmp_path: Path) -> None:
    words = _Words()
    remembered = FileCache(words)
    path = _write(tmp_path / "a", "one two")
    assert [remembered.get(path), remembered.get(path)] == [["one", "two"]] * 2
    assert words.count == 1


@pytest.mark.parametrize(("text", "at"), [("three four", _LONG_AGO), ("six two", _LONG_AGO + 1)])
def test_a_file_of_another_size_or_time_is_read_again(tmp_path: Path, text: str, at: int) -> None:
    remembered = FileCache(_Words())
    remembered.get(_write(tmp_path / "a", "one two"))
    assert remembered.get(_write(tmp_path / "a", text, at=at)) == text.split()


def test_a_file_that_was_put_in_the_place_of_another_is_read(tmp_path: Path) -> None:
    remembered = FileCache(_Words())
    path = _write(tmp_path / "a", "one two")
    remembered.get(path)
    _write(tmp_path / "b", "six two")
    (tmp_path / "b").replace(path)
    assert remembered.get(path) == ["six", "two"]


def test_what_was_changed_just_now_is_not_relied_upon(tmp_path: Path) -> None:
    words = _Words()
    remembered = FileCache(words)
    file = tmp_path / "a"
    file.write_text("one")
    assert [remembered.get(str(file)), remembered.get(str(file))] == [["one"]] * 2
    assert words.count == 2


def test_what_is_no_file_makes_nothing(tmp_path: Path) -> None:
    remembered = FileCache(_Words())
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe", Path(_write(tmp_path / "a", "")) / "below"):
        assert remembered.get(str(path)) is None


def test_a_long_file_is_read_in_part(tmp_path: Path) -> None:
    assert FileCache(_Words(), most=5).get(_write(tmp_path / "a", "one two")) == ["one", "t"]


def test_the_oldest_of_many_files_are_forgotten(tmp_path: Path) -> None:
    words = _Words()
    remembered = FileCache(words)
    paths = [_write(tmp_path / str(number), "one") for number in range(600)]
    for path in (*paths, paths[-1], paths[0]):
        remembered.get(path)
    assert words.count == 601
