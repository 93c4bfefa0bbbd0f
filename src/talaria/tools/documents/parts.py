"""Parts of a document: pages, sheets, slides or chapters, read one by one."""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from talaria.core.errors import ToolFailed

_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d*))?")


class Section(Struct, frozen=True):
    """A part with its name, if it has one; ``text`` reads it. Office programs don't show ``hidden`` parts."""

    name: str
    text: Callable[[], str]
    hidden: bool = False


class Parts(Struct, frozen=True):
    """A document: its kind in words, the word for its parts, and the parts."""

    kind: str
    unit: str
    sections: Sequence[Section]
    title: str = ""

    def choose(self, wanted: str) -> list[int]:
        """Return the indexes of the parts named by numbers, ranges or names; all of them by default."""
        if not wanted.strip():
            return list(range(len(self.sections)))
        named = [index for index, one in enumerate(self.sections) if one.name and one.name == wanted.strip()]
        return named or list(dict.fromkeys(self._numbered(wanted)))

    def _numbered(self, wanted: str) -> Iterator[int]:
        for one in wanted.split(","):
            found = _RANGE.fullmatch(one.strip())
            if found is None:
                names = ", ".join(section.name for section in self.sections[:20] if section.name)
                raise ToolFailed(f"{one.strip()!r} is no {self.unit or 'part'}{f'; it has {names}' if names else ''}")
            first = int(found[1])
            last = len(self.sections) if found[2] == "" else int(found[2] or first)
            if not 1 <= first <= len(self.sections):
                raise ToolFailed(f"it has {len(self.sections)} {self.unit or 'part'}s; there is no {first}")
            yield from range(first - 1, min(last, len(self.sections)))


def table_row(cells: Sequence[str]) -> str:
    """Return cells as a row of a Markdown table."""
    escaped = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
