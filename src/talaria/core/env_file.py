"""Assignments in the text of a ``.env`` file."""

import re

_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(.*)"
_DOUBLE_QUOTED = r'"((?:\\.|[^"\\])*)"\s*(?:#.*)?'
_SINGLE_QUOTED = r"'([^']*)'\s*(?:#.*)?"
_COMMENT = r"(?:^|(?<!\s)\s+)#.*"
_ESCAPE = r"\\(.)"


def split_env_lines(text: str) -> list[str]:
    """Return the lines of a file, without a last empty one."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def parse_assignment(line: str) -> tuple[str, str | None]:
    """Return name and value of a line; no value if its quotes do not match, no name without assignment."""
    found = re.fullmatch(_ASSIGNMENT, line)
    if found is None:
        return "", None
    name, text = found.groups()
    if text.startswith('"'):
        double = re.fullmatch(_DOUBLE_QUOTED, text)
        return name, _unescape(double[1]) if double else None
    if text.startswith("'"):
        single = re.fullmatch(_SINGLE_QUOTED, text)
        return name, single[1] if single else None
    return name, re.sub(_COMMENT, "", text).strip()


def read_assignments(text: str) -> dict[str, str]:
    """Return all values by name; the last one of a name wins, other lines are ignored."""
    lines = (line for line in split_env_lines(text) if not line.lstrip().startswith("#"))
    found = (parse_assignment(line) for line in lines)
    return {name: value for name, value in found if name and value}


def _unescape(text: str) -> str:
    letters = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(_ESCAPE, lambda found: letters.get(found[1], found[1]), text)
