"""Unified diffs of text: the one producer of diffs; surfaces only render them."""

import re
from collections.abc import Sequence
from difflib import unified_diff

_CONTEXT = 2
_LONGEST = 40_000
_MOST_LINES = 2_000  # difflib takes quadratic time: 2,000 changed lines cost about a second


def diff_texts(old: str, new: str) -> str:
    """Return the hunks of a unified diff, without a header; a very large change is a count of lines.

    At most about 40,000 characters are returned; the last line then says how many lines are missing.
    """
    before, after = old.splitlines(), new.splitlines()
    head = _count_common_lines(before, after)
    tail = _count_common_lines(before[head:][::-1], after[head:][::-1])
    first, last = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    removed, added = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(removed), len(added)) > _MOST_LINES:
        return f"@@ {len(removed):,} lines replaced by {len(added):,} @@"
    diff = list(unified_diff(removed, added, lineterm="", n=_CONTEXT))[2:]
    lines = [_shift(line, first) if line.startswith("@@") else line for line in diff]
    return _limit_length(lines).encode("utf-8", "replace").decode()


def _limit_length(lines: Sequence[str]) -> str:
    size = 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > _LONGEST:
            return "\n".join((*lines[:number], f"@@ {len(lines) - number:,} more lines @@"))
    return "\n".join(lines)


def _shift(header: str, lines: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda found: f"{found[1]}{int(found[2]) + lines}", header)


def _count_common_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
