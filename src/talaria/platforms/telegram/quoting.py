"""The marks of a Telegram text as Markdown, so that a model sees what the person saw."""

from collections.abc import Sequence

from telegram import MessageEntity

_QUOTE = "> "
_AROUND = {"bold": "**", "italic": "_", "strikethrough": "~~", "code": "`"}


def as_markdown(text: str, marks: Sequence[MessageEntity]) -> str:
    """Return a text with its marks written out; what stands in it already stays as it is.

    Marks that reach beyond the text, or have no counterpart, are left out.
    """
    data = text.encode("utf-16-le", "surrogatepass")
    inserts: list[tuple[int, int, int, str]] = []
    for mark in marks:
        start, end = mark.offset, mark.offset + mark.length
        if not 0 <= start < end <= len(data) // 2:
            continue
        opening, closing = _signs(mark, cut(text, start, end))
        if opening:
            # At one place, what ends comes before what begins; the longer begins first and ends last.
            inserts.append((start, 1, -mark.length, opening))
            inserts.append((end, 0, mark.length, closing))
        if opening == _QUOTE:
            inserts += [(place, 1, -mark.length, _QUOTE) for place in _line_starts(text, start, end)]
    pieces = []
    at = 0
    for place, _, _, sign in sorted(inserts, key=lambda one: one[:3]):
        pieces += [_text(data[at * 2 : place * 2]), sign]
        at = place
    return "".join([*pieces, _text(data[at * 2 :])])


def cut(text: str, start: int, end: int | None = None) -> str:
    """Return a part of a text between places in UTF-16 code units."""
    data = text.encode("utf-16-le", "surrogatepass")
    return _text(data[start * 2 : None if end is None else end * 2])


def _line_starts(text: str, start: int, end: int) -> list[int]:
    """Return where lines begin between two places, apart from the first."""
    starts = []
    for line in cut(text, start, end).split("\n")[:-1]:
        start += len(line.encode("utf-16-le")) // 2 + 1
        starts.append(start)
    return starts


def _text(data: bytes) -> str:
    return data.decode("utf-16-le", "replace")


def _signs(mark: MessageEntity, shown: str) -> tuple[str, str]:
    match mark.type:
        case "text_link" if mark.url:
            return "[", f"]({mark.url})"
        case "pre":
            fence = "`" * max(3, _longest_row_of_ticks(shown) + 1)
            return f"{fence}{mark.language or ''}\n", f"\n{fence}"
        case "code":
            ticks = "`" * (_longest_row_of_ticks(shown) + 1)
            space = " " if "`" in shown else ""
            return ticks + space, space + ticks
        case "blockquote" | "expandable_blockquote":
            return _QUOTE, ""
        case kind:
            return _AROUND.get(kind, ""), _AROUND.get(kind, "")


def _longest_row_of_ticks(text: str) -> int:
    longest = row = 0
    for character in text:
        row = row + 1 if character == "`" else 0
        longest = max(longest, row)
    return longest
