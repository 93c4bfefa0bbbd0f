"""Text as networks take it."""

import re

_LINE_ENDS = re.compile(r"\r\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HALVES = re.compile(r"[\ud800-\udfff]")


def sendable(text: str) -> str:
    """Return a text without characters that cannot travel or that nobody could see."""
    return _HALVES.sub("\ufffd", _CONTROLS.sub("", _LINE_ENDS.sub("\n", text)))
