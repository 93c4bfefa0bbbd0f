"""Accessibility snapshots of pages: compact text with element references, in parts that a model can afford."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from talaria.core.errors import ToolFailed

PART_TOKENS = 1_750  # estimated; with its heading, a part stays below 2,000
_CHANGE_TOKENS = 800
# Tokens of models, as far as one pattern can tell: within 5 % of o200k for ASCII, too many for other scripts.
_TOKENS = re.compile(r"[A-Za-z]{1,7}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,2}")
_TWO_BYTES, _THREE_BYTES = "\u07ff", "\uffff"
_LONGEST_URL = 90
_LONGEST_LINE = 1_500
_AROUND = 2  # lines around a match
_MOST_MATCHES = 40
_LINE = re.compile(r"(?P<indent> *)- (?P<role>/?[\w-]+)(?P<rest>.*)\Z", re.DOTALL)
_REF = re.compile(r" \[ref=(\w+)\]")
_POINTER = " [cursor=pointer]"
# Roles that are read, not used: their references are left out, as are those without a name of their own.
_READ = frozenset({
    "generic", "text", "paragraph", "heading", "list", "listitem", "table", "rowgroup", "row", "cell", "gridcell",
    "columnheader", "rowheader", "navigation", "main", "banner", "contentinfo", "complementary", "region", "article",
    "group", "img", "figure", "strong", "emphasis", "code", "blockquote", "separator", "form", "search", "status",
    "alert", "document", "term", "definition", "caption", "time", "mark", "deletion", "insertion", "subscript",
    "superscript",
})  # fmt: skip
_STRUCTURE = frozenset({"generic", "rowgroup", "listitem", "list", "group", "row", "table", "cell"})


class PageSnapshot(Struct, frozen=True):
    """A page as text; ``labels`` describe the elements that have a reference."""

    url: str
    title: str
    lines: tuple[str, ...]
    labels: Mapping[str, str]

    def read_part(self, number: int, tokens: int = PART_TOKENS) -> str:
        """Return a part of the page, with a note on how to continue; raises `ToolFailed` after the last one."""
        parts = list(_split(self.lines, tokens))
        if not parts:
            return "(the page shows nothing)"
        if not 1 <= number <= len(parts):
            raise ToolFailed(f"The page has {len(parts)} parts; there is no part {number}.")
        more = f"\n[part {number} of {len(parts)}; continue with part={number + 1}, or search with text]"
        return parts[number - 1] + (more if number < len(parts) else "")

    def find(self, text: str) -> str:
        """Return the lines that contain a text, each with its neighbours."""
        found = [number for number, line in enumerate(self.lines) if text.casefold() in line.casefold()]
        if not found:
            raise ToolFailed(f'The page doesn\'t contain "{text}".')
        shown = sorted(
            {near for one in found[:_MOST_MATCHES] for near in range(one - _AROUND, one + _AROUND + 1)}
            & set(range(len(self.lines)))
        )
        lines = [
            f"{'' if not index or shown[index - 1] == number - 1 else '…' + chr(10)}{self.lines[number]}"
            for index, number in enumerate(shown)
        ]
        part = next(_split(tuple(lines), PART_TOKENS))
        return f"{len(found)} lines contain it:\n{part}"

    def describe_change(self, before: "PageSnapshot | None") -> str:
        """Return only what is new since another snapshot of the same address, or a whole part if that is shorter."""
        if before is None or before.url != self.url:
            return self.read_part(1)
        known = set(before.lines)
        fresh = [line for line in self.lines if line not in known]
        text = "\n".join(fresh)
        if not fresh and len(self.lines) == len(before.lines):
            return "(nothing on the page has changed)"
        if not fresh:
            return "(elements have disappeared, nothing new; snapshot shows the page)"
        if estimate_tokens(text) > _CHANGE_TOKENS:
            return self.read_part(1)
        return f"New or changed on the page (snapshot shows all of it):\n{text}"


def make_snapshot(url: str, title: str, tree: str) -> PageSnapshot:
    """Return the snapshot for Playwright's accessibility tree.

    Layout without a name is left out and its children move up; references stay where something can be done.
    """
    lines: list[str] = []
    labels: dict[str, str] = {}
    dropped: list[int] = []  # indents of the left out ancestors
    for raw in tree.splitlines():
        found = _LINE.match(raw)
        if found is None:
            lines.append(raw)
            continue
        indent = len(found["indent"])
        while dropped and dropped[-1] >= indent:
            dropped.pop()
        line = _shorten(found["role"], found["rest"], labels)
        if not line:
            dropped.append(indent)
        else:
            lines.append(" " * ((indent - 2 * len(dropped)) // 2) + line)
    return PageSnapshot(url, title, tuple(lines), labels)


def _shorten(role: str, rest: str, labels: dict[str, str]) -> str:
    """Return a line without its indent; empty for mere layout."""
    if role == "/url":
        return f"/url{rest[:_LONGEST_URL]}"
    reference = _REF.search(rest)
    is_pointed_at = _POINTER in rest
    rest = rest.replace(_POINTER, "")
    if reference is not None and role in _READ and not is_pointed_at:
        rest = rest.replace(reference[0], "")
    elif reference is not None:
        labels[reference[1]] = f"{role}{_REF.sub('', rest).rstrip(':')}"[:120]
    if role in _STRUCTURE and rest.replace(" [active]", "").strip() in ("", ":"):
        return ""
    line = f"{role}{rest}".removesuffix(":")
    return f"{line[:_LONGEST_LINE]}…" if len(line) > _LONGEST_LINE else line


def estimate_tokens(text: str) -> float:
    """Return about how many tokens a model needs for a text."""
    ascii_tokens = len(_TOKENS.findall(text)) + text.count("\n") / 2
    if text.isascii():
        return ascii_tokens
    others = (0.6 if one <= _TWO_BYTES else 1 if one <= _THREE_BYTES else 2 for one in text if not one.isascii())
    return ascii_tokens + sum(others)


def _split(lines: tuple[str, ...], tokens: float) -> Iterator[str]:
    """Yield the text in parts of about ``tokens`` at most, cut between lines."""
    part: list[str] = []
    room = tokens
    for line in lines:
        needed = estimate_tokens(line) + 0.5
        if part and room < needed:
            yield "\n".join(part)
            part, room = [], tokens
        part.append(line)
        room -= needed
    if part:
        yield "\n".join(part)
