"""Read what stands before a Markdown text: a few named lines between two ``---``."""

import re

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_LITERAL, _FOLDED = {"|", "|-", "|+"}, {">", ">-", ">+"}


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the named lines, names in lower case, and the text behind them; no lines where there are none.

    Indented lines belong to the name before them, as in YAML: behind a ``|`` they stay lines, else they become one.
    """
    text = text.replace("\r\n", "\n")
    front = _FRONT.match(text)
    if front is None:
        return {}, text.strip()
    return _fields(front[1]), text[front.end() :].strip()


def _fields(front: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name, joint = "", " "
    for line in front.splitlines():
        if found := _FIELD.fullmatch(line):
            name, value = found[1].lower(), found[2].strip()
            joint = "\n" if value in _LITERAL else " "
            fields[name] = "" if value in _LITERAL | _FOLDED else _unquoted(value)
        elif name and line[:1].isspace() and line.strip():
            fields[name] += (joint if fields[name] else "") + line.strip()
    return fields


def _unquoted(value: str) -> str:
    inside = value[1:-1]
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" and value[0] not in inside
    return inside if quoted else value
