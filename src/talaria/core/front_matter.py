"""Front matter of a Markdown text: named lines between two ``---``."""

import re

_FRONT = r"(?sm)\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?"
_FIELD = r"([A-Za-z][\w-]*):[ \t]*(.*)"
_LITERAL, _FOLDED = {"|", "|-", "|+"}, {">", ">-", ">+"}


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the named lines, names in lower case, and the text after them; without front matter no names.

    Indented lines belong to the name before them, as in YAML: after a ``|`` they stay lines, otherwise they are joined.
    """
    text = text.replace("\r\n", "\n")
    front = re.match(_FRONT, text)
    if front is None:
        return {}, text.strip()
    return _fields(front[1]), text[front.end() :].strip()


def _fields(front: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name, separator = "", " "
    for line in front.splitlines():
        if found := re.fullmatch(_FIELD, line):
            name, value = found[1].lower(), found[2].strip()
            separator = "\n" if value in _LITERAL else " "
            fields[name] = "" if value in _LITERAL | _FOLDED else _unquote(value)
        elif name and line[:1].isspace() and line.strip():
            fields[name] += (separator if fields[name] else "") + line.strip()
    return fields


def _unquote(value: str) -> str:
    inside = value[1:-1]
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" and value[0] not in inside
    return inside if quoted else value
