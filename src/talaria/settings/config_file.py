"""Parsed config.toml: its table, the lines of its keys, and its fault if unreadable."""

import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from talaria.settings.atomic_files import read_file
from talaria.settings.errors import Fault, ProfileUnusable, SourceLocation

if TYPE_CHECKING:  # loaded when a line number is reported
    from talaria.settings.toml_lines import KeyPath

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"


class ConfigFile:
    """Configuration file; a missing file is empty."""

    def __init__(self, path: Path, text: str, fault: Fault | None = None) -> None:
        self.path = path
        self.text = text
        self.table: dict[str, Any] = {}
        self.fault = fault
        if text:
            self._parse()

    def locate(self, path: "KeyPath") -> SourceLocation:
        """Return the line of a key, or of the innermost table around it in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return SourceLocation(str(self.path), self._lines.get(path))

    @cached_property
    def _lines(self) -> "dict[KeyPath, int]":
        from talaria.settings.toml_lines import key_lines  # noqa: PLC0415 (loaded when a line number is reported)

        return key_lines(self.text)

    def _parse(self) -> None:
        try:
            self.table = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            self.fault = _build_syntax_fault(self.path, self.text, error)
        except (RecursionError, ValueError) as error:
            self.fault = Fault(problem=f"This isn't valid TOML: {error}.", file=str(self.path))


def read_source(path: Path) -> ConfigFile:
    """Read a configuration file; a problem with the whole file becomes its fault."""
    try:
        return ConfigFile(path, (read_file(path) or b"").decode("utf-8-sig"))
    except ProfileUnusable as error:
        return ConfigFile(path, "", build_unreadable_fault(error))
    except UnicodeDecodeError as error:
        return ConfigFile(path, "", build_encoding_fault(path, error))


def build_unreadable_fault(error: ProfileUnusable) -> Fault:
    """Return the fault of a file that cannot be opened."""
    return Fault(problem=f"The file {error.trouble}.", file=str(error.path))


def build_encoding_fault(path: Path, error: UnicodeDecodeError) -> Fault:
    """Return the fault of a file that is not UTF-8, with the first such line."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return Fault(problem="The file must be UTF-8 text.", file=str(path), line=line, expected="UTF-8 text")


def _build_syntax_fault(path: Path, text: str, error: tomllib.TOMLDecodeError) -> Fault:
    # Before Python 3.14 only the message of a syntax error has its line.
    found = re.search(_LINE_OF_ERROR, str(error))
    line = int(found[1]) if found else text.count("\n") + 1
    reason = str(error).partition(" (at ")[0]
    return Fault(problem=f"This isn't valid TOML: {reason[:1].lower()}{reason[1:]}.", file=str(path), line=line)
