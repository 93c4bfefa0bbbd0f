"""Regular expressions matched in time linear to the text.

Python's `re` backtracks: one pattern and a line of 40 characters can hold the interpreter lock forever. RE2 can't; it
has neither lookaround nor backreferences, like ripgrep.
"""

from typing import Any

import re2

_MOST_MEMORY = 8 << 20


class PatternInvalid(ValueError):
    """The text is not a regular expression that RE2 accepts."""


class LinearPattern:
    """A compiled expression; raises `PatternInvalid` for invalid text."""

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.log_errors, options.never_capture, options.max_mem = False, True, _MOST_MEMORY
        try:
            self._compiled: Any = re2.compile(_valid(pattern), options)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace") if error.args else "it is invalid"
            raise PatternInvalid(reason) from error

    def occurs_in(self, text: str) -> bool:
        """Return whether some part of the text matches."""
        return self._compiled.search(_valid(text)) is not None

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._compiled.fullmatch(_valid(text)) is not None


def _valid(text: str) -> str:
    """Return the text without lone surrogates, which file names may contain and UTF-8 can't."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
