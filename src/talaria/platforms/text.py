"""Text that networks accept."""

import re

_LINE_ENDS = re.compile(r"\r\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def sanitize_text(text: str) -> str:
    """Return a text without untransmittable or invisible characters."""
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _LINE_ENDS.sub("\n", text)))
