"""A config.toml as it was read: its table, the lines of its keys, and what kept it from being read."""

import re
import tomllib
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from talaria.settings.errors import ProfileUnusable
from talaria.settings.faults import Fault, Place
from talaria.settings.files import read_file

if TYPE_CHECKING:  # loaded where a place in the file has to be told
    from talaria.settings.lines import KeyPath

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"


class Source:
    """One configuration file; a file that does not exist is an empty one."""

    def __init__(self, path: Path, text: str, fault: Fault | None = None) -> None:
        self.path = path
        self.text = text
        self.table: dict[str, Any] = {}
        self.fault = fault
        if text:
            self._parse()

    def place(self, path: "KeyPath") -> Place:
        """The line of a key, or of the innermost table around it that stands in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return Place(str(self.path), self._lines.get(path))

    @cached_property
    def _lines(self) -> "dict[KeyPath, int]":
        found: dict[KeyPath, int] = import_module("talaria.settings.lines").key_lines(self.text)
        return found

    def _parse(self) -> None:
        try:
            self.table = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            self.fault = _syntax_fault(self.path, self.text, error)
        except (RecursionError, ValueError) as error:
            self.fault = Fault(problem=f"This cannot be read as TOML: {error}.", file=str(self.path))


def read_source(path: Path) -> Source:
    """Read a configuration file; what is wrong with it as a whole becomes its fault."""
    try:
        return Source(path, (read_file(path) or b"").decode("utf-8-sig"))
    except ProfileUnusable as error:
        return Source(path, "", unreadable(error))
    except UnicodeDecodeError as error:
        return Source(path, "", not_utf8(path, error))


def unreadable(error: ProfileUnusable) -> Fault:
    """The file is there, but cannot be opened."""
    return Fault(problem=f"The file {error.trouble}.", file=str(error.path))


def not_utf8(path: Path, error: UnicodeDecodeError) -> Fault:
    """The file holds bytes that are not text in UTF-8; the fault names the first line with one."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return Fault(problem="The file must be text in UTF-8.", file=str(path), line=line, expected="text in UTF-8")


def _syntax_fault(path: Path, text: str, error: tomllib.TOMLDecodeError) -> Fault:
    # Before Python 3.14 the line of a syntax error stands nowhere but in its text.
    found = re.search(_LINE_OF_ERROR, str(error))
    line = int(found[1]) if found else text.count("\n") + 1
    reason = str(error).partition(" (at ")[0]
    return Fault(problem=f"This is not valid TOML: {reason[:1].lower()}{reason[1:]}.", file=str(path), line=line)
