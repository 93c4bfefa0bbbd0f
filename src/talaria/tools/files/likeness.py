"""Find lines that mean the same although blanks, indentation or quotation marks differ."""

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

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
    """Return the text with typewriter quotation marks, hyphens and blanks; character for character."""
    return text.translate(_TABLE)


Likeness = Callable[[str], str]

# From strict to lax: the first that finds anything decides.
LIKENESSES: tuple[Likeness, ...] = (
    str,
    str.rstrip,
    lambda line: plain(line).strip(),
    lambda line: _BLANKS.sub(" ", plain(line)).strip(),
)


def find_block(lines: Sequence[str], block: Sequence[str], likeness: Likeness) -> list[int]:
    """Return every index at which ``block`` stands in ``lines``."""
    if not block:
        return []
    wanted = [likeness(line) for line in block]
    have = [likeness(line) for line in lines]
    starts = range(len(have) - len(wanted) + 1)
    return [start for start in starts if have[start] == wanted[0] and have[start : start + len(wanted)] == wanted]


def indentation(line: str) -> str:
    """Return the blanks before a line."""
    return line[: len(line) - len(line.lstrip())]


def reindent(new: Sequence[str], old: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return ``new`` moved as far as the lines that were found stand from those that were given."""
    pairs = ((have, want) for have, want in zip(found, old, strict=False) if want.strip())
    have, want = next(pairs, ("", ""))
    here, there = indentation(have), indentation(want)
    if here == there:
        return list(new)
    return [here + line[len(there) :] if line.strip() and line.startswith(there) else line for line in new]


def nearest(lines: Sequence[str], wanted: str, *, context: int = 2) -> str:
    """Return the lines around what is most similar to ``wanted``, numbered; empty where nothing is."""
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
