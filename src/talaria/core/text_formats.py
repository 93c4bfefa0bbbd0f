"""Small text formats: assignments of ``.env`` files, front matter of Markdown, nesting of HTML."""

import re

_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(.*)"
_DOUBLE_QUOTED = r'"((?:\\.|[^"\\])*)"\s*(?:#.*)?'
_SINGLE_QUOTED = r"'([^']*)'\s*(?:#.*)?"
_COMMENT = r"(?:^|(?<!\s)\s+)#.*"
_ESCAPE = r"\\(.)"
_FRONT = r"(?sm)\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?"
_FIELD = r"([A-Za-z][\w-]*):[ \t]*(.*)"
_LITERAL, _FOLDED = {"|", "|-", "|+"}, {">", ">-", ">+"}
_TAG = r"<(/?)([a-z][^\s/>]*)"
_TEXT_ONLY = {"script", "style", "textarea", "title", "xmp", "noframes"}
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_OFTEN_LEFT_OPEN = {
    "html", "head", "body", "p", "li", "dt", "dd", "option", "optgroup", "colgroup", "caption", "thead", "tbody",
    "tfoot", "tr", "td", "th", "rt", "rp",
}  # fmt: skip


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


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the named lines, names in lower case, and the text after them; without front matter no names.

    Indented lines belong to the name before them, as in YAML: after a ``|`` they stay lines, otherwise they are joined.
    """
    text = text.replace("\r\n", "\n")
    front = re.match(_FRONT, text)
    if front is None:
        return {}, text.strip()
    return _parse_fields(front[1]), text[front.end() :].strip()


def _parse_fields(front: str) -> dict[str, str]:
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


def is_nested_deeper(html: str, limit: int) -> bool:
    """Return whether more elements than this are ever open at once, judging by their tags."""
    text, find_tag = html.lower(), re.compile(_TAG).search
    still_open: dict[str, int] = {}
    depth = position = 0
    while found := find_tag(text, position):
        closing, name = found.groups()
        position = found.end()
        if name in _VOID or name in _OFTEN_LEFT_OPEN:
            continue
        if not closing and name in _TEXT_ONLY:
            position = text.find(f"</{name}", position) + 1 or len(text)
            continue
        # A closing tag of an element that isn't open closes nothing, and must not hide one that is.
        before = still_open.get(name, 0)
        still_open[name] = max(0, before - 1) if closing else before + 1
        depth += still_open[name] - before
        if depth > limit:
            return True
    return False
