"""Cut what a program sends to its terminal into text and whole control sequences."""

import re
from collections.abc import Iterator

from msgspec import Struct

_WHOLE = re.compile(
    r"\x1b(?:"
    r"\[([<-?]?)([0-9:;]*)([ -/]*)([@-~])"  # a control sequence: private mark, numbers, more marks, what to do
    r"|\]([^\x07\x1b]*)(?:\x07|\x1b\\)"  # a command to the system: title, hyperlink, clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # strings for devices that nobody has
    r"|[ -/]*[0-OQ-WYZ\\`-~]"  # everything short
    r")"
)
_BEGUN = re.compile(r"\x1b(?:\[[<-?]?[0-9:;]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")


class Sequence(Struct, frozen=True):
    """One control sequence, as it came and taken apart; ``final`` is empty for all but those with numbers."""

    written: str
    private: str = ""
    numbers: str = ""
    marks: str = ""
    final: str = ""
    system: str = ""


class Cutter:
    """Remembers the sequence that one piece of output began and the next will finish."""

    def __init__(self) -> None:
        self._begun = ""

    def cut(self, output: str) -> Iterator[str | Sequence]:
        """Yield text and sequences in order. An escape that begins nothing known is dropped."""
        output = self._begun + output
        self._begun = ""
        place = 0
        while (escape := output.find("\x1b", place)) >= 0:
            if escape > place:
                yield output[place:escape]
            found = _WHOLE.match(output, escape)
            if found:
                private, numbers, marks, final, system = (group or "" for group in found.groups())
                yield Sequence(found[0], private, numbers, marks, final, system)
            elif _BEGUN.match(output, escape):
                self._begun = output[escape:]
                return
            place = found.end() if found else escape + 1
        if place < len(output):
            yield output[place:]
