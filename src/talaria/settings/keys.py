"""Names of settings: dotted keys, and the environment variables that override them."""

import re
from collections.abc import Iterable

Key = tuple[str, ...]

ANY_NAME = "<name>"
VARIABLE_PREFIX = "TALARIA__"

_BARE = r"[A-Za-z0-9_-]+"
_PART = r"\"[^\"]*\"|'[^']*'|[^.]+"
_NOT_IN_VARIABLES = r"[^A-Z0-9_]"


def dotted(key: Iterable[str | int]) -> str:
    """The key as one writes it: ``store.url``, ``providers."gpt.4".url``."""
    return ".".join(_written(str(part)) for part in key)


def split_key(text: str) -> Key:
    """The parts of a dotted key; a part in quotes may hold dots."""
    return tuple(part[1:-1] if part[0] in "\"'" else part.strip() for part in re.findall(_PART, text))


def variable(key: Key) -> str:
    """The environment variable that overrides ``key``."""
    return VARIABLE_PREFIX + "__".join(variable_part(part) for part in key)


def variable_part(name: str) -> str:
    """How one part of a key reads in the name of an environment variable."""
    return name if name == ANY_NAME else re.sub(_NOT_IN_VARIABLES, "_", name.upper())


def _written(part: str) -> str:
    if part == ANY_NAME or re.fullmatch(_BARE, part):
        return part
    return f"'{part}'" if '"' in part else f'"{part}"'
