"""Replace a passage of a text, exactly where possible, by likeness where that is unambiguous."""

from collections.abc import Sequence

from talaria.core.errors import ToolFailed
from talaria.tools.files.likeness import LIKENESSES, find_block, nearest, plain, reindent

_SHOWN_PLACES = 5


def replace_passage(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """Return the text with ``new`` in place of ``old``, or raise `ToolFailed` with what stands there instead.

    Unless ``everywhere``, ``old`` must stand there once. Where it does not stand there literally, a passage is
    taken that differs in blanks, indentation or typographic marks only, provided that there is just one.
    """
    if not old:
        raise ToolFailed("old_text is empty: say what is to be replaced, or use write_file.")
    if old == new:
        raise ToolFailed("old_text and new_text are the same.")
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
        f"old_text fits {len(numbers)} places (lines {shown}): add lines around it, or set replace_all if it is exact."
    )


def _missing(lines: Sequence[str], block: Sequence[str]) -> ToolFailed:
    similar = nearest(lines, max(block, key=lambda line: len(line.strip())))
    what = f"Most similar:\n{similar}" if similar else "Nothing there is similar; read the file first."
    return ToolFailed(f"old_text does not stand in the file. {what}")
