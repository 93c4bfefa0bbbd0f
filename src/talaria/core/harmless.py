"""Characters that disturb whoever looks at a text, and what stands in their place."""

import re

# Control characters, and those that reverse or break what is shown around them.
HARMFUL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"

_FIND_HARMFUL = re.compile(HARMFUL)


def harmless_json(text: str) -> str:
    """Return the same JSON with harmful characters escaped, as JSON escapes them."""
    return _FIND_HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
