"""Find lines that are equal except for spaces, indentation or quotation marks."""

import re
from collections.abc import Callable, Sequence

from talaria.core.errors import ToolFailed

_TYPOGRAPHY = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
}


_TABLE = str.maketrans(_TYPOGRAPHY)


_BLANKS = re.compile(r"\s+")


_SIMILAR = 0.5


_COMPARED = 20_000


def plain(text: str) -> str:
    """Return the text with plain quotation marks, hyphens and spaces, character by character."""
    return text.translate(_TABLE)


Likeness = Callable[[str], str]


# From strict to lax: the first one that matches decides.
LIKENESSES: tuple[Likeness, ...] = (
    str,
    str.rstrip,
    lambda line: plain(line).strip(),
    lambda line: _BLANKS.sub(" ", plain(line)).strip(),
)


def find_block(lines: Sequence[str], block: Sequence[str], likeness: Likeness) -> list[int]:
    """Return every index at which ``block`` occurs in ``lines``."""
    if not block:
        return []
    wanted = [likeness(line) for line in block]
    have = [likeness(line) for line in lines]
    starts = range(len(have) - len(wanted) + 1)
    return [start for start in starts if have[start] == wanted[0] and have[start : start + len(wanted)] == wanted]


def indentation(line: str) -> str:
    """Return the indentation of a line."""
    return line[: len(line) - len(line.lstrip())]


def reindent(new: Sequence[str], old: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return ``new``, indented relative to the lines found as it was to the lines given."""
    pairs = ((have, want) for have, want in zip(found, old, strict=False) if want.strip())
    have, want = next(pairs, ("", ""))
    here, there = indentation(have), indentation(want)
    if here == there:
        return list(new)
    return [here + line[len(there) :] if line.strip() and line.startswith(there) else line for line in new]


def nearest(lines: Sequence[str], wanted: str, *, context: int = 2) -> str:
    """Return the numbered lines most similar to ``wanted``; empty if nothing is similar."""
    from difflib import SequenceMatcher  # noqa: PLC0415 (loaded when a passage is missing)

    matcher = SequenceMatcher(b=wanted.strip())
    best, score = -1, _SIMILAR
    for index, line in enumerate(lines[:_COMPARED]):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score and matcher.ratio() > score:
            best, score = index, matcher.ratio()
    if best < 0:
        return ""
    first = max(0, best - context)
    return "\n".join(f"{first + n + 1:>5}\t{line[:300]}" for n, line in enumerate(lines[first : best + context + 1]))


_SHOWN_PLACES = 5


def replace_passage(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """Return the text with ``new`` in place of ``old``, or raise `ToolFailed` with the most similar lines.

    Unless ``everywhere``, ``old`` must occur once. If it doesn't occur literally, a single passage that differs only in
    spaces, indentation or typographic marks is used.
    """
    if not old:
        raise ToolFailed("old_text is empty. Give the text to replace, or use write_file.")
    if old == new:
        raise ToolFailed("old_text and new_text are identical.")
    places = _places(text, old)
    if len(places) == 1 or (places and everywhere):
        return text.replace(old, new)
    if places:
        raise _ambiguous([text.count("\n", 0, place) + 1 for place in places])
    return _replace_alike(text, old, new)


def _places(text: str, passage: str) -> list[int]:
    found, start = [], text.find(passage)
    while start >= 0:
        found.append(start)
        start = text.find(passage, start + len(passage))
    return found


def _replace_alike(text: str, old: str, new: str) -> str:
    places = _places(plain(text), plain(old))
    if len(places) == 1:
        return text[: places[0]] + new + text[places[0] + len(old) :]
    lines, block = text.split("\n"), old.strip("\n").split("\n")
    for likeness in LIKENESSES:
        found = find_block(lines, block, likeness) if any(line.strip() for line in block) else []
        if len(found) > 1:
            raise _ambiguous([start + 1 for start in found])
        if found:
            return _with_lines(lines, found[0], block, new.strip("\n").split("\n") if new.strip("\n") else [])
    raise _missing(lines, block)


def _with_lines(lines: Sequence[str], start: int, old: Sequence[str], new: Sequence[str]) -> str:
    end = start + len(old)
    return "\n".join((*lines[:start], *reindent(new, old, lines[start:end]), *lines[end:]))


def _ambiguous(numbers: Sequence[int]) -> ToolFailed:
    shown = ", ".join(map(str, numbers[:_SHOWN_PLACES])) + (", …" if len(numbers) > _SHOWN_PLACES else "")
    return ToolFailed(
        f"old_text matches {len(numbers)} places (lines {shown}). Add surrounding lines, or set replace_all if "
        "it is exact."
    )


def _missing(lines: Sequence[str], block: Sequence[str]) -> ToolFailed:
    similar = nearest(lines, max(block, key=lambda line: len(line.strip())))
    what = f"Most similar:\n{similar}" if similar else "Nothing similar found. Read the file first."
    return ToolFailed(f"old_text was not found in the file. {what}")
