"""Split terminal output into text and whole control sequences."""

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
_PARTIAL = re.compile(r"\x1b(?:\[[<-?]?[0-9:;]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")


class ControlSequence(Struct, frozen=True):
    """One control sequence, raw and parsed; ``final`` is empty for all but those with numbers."""

    written: str
    private: str = ""
    numbers: str = ""
    marks: str = ""
    final: str = ""
    system: str = ""


class SequenceSplitter:
    """Stores the sequence that one piece of output started and the next will finish."""

    def __init__(self) -> None:
        self._partial = ""

    def split(self, output: str) -> Iterator[str | ControlSequence]:
        """Yield text and sequences in order. An escape that begins nothing known is dropped."""
        output = self._partial + output
        self._partial = ""
        position = 0
        while (escape := output.find("\x1b", position)) >= 0:
            if escape > position:
                yield output[position:escape]
            found = _WHOLE.match(output, escape)
            if found:
                private, numbers, marks, final, system = (group or "" for group in found.groups())
                yield ControlSequence(found[0], private, numbers, marks, final, system)
            elif _PARTIAL.match(output, escape):
                self._partial = output[escape:]
                return
            position = found.end() if found else escape + 1
        if position < len(output):
            yield output[position:]
