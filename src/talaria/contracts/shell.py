"""What runs a line of a shell for a person: one of their own commands, not one of a model."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.contracts.tool import Workspace


class Ran(Struct, frozen=True):
    """How a line ended: its exit code, negative for a signal, ``None`` behind a time-out; and what it printed."""

    code: int | None
    output: str


class Shell(Protocol):
    """The shell of this machine."""

    async def run(self, line: str, words: Sequence[str], workspace: Workspace, *, seconds: float) -> Ran:
        """Run a line there, with ``words`` as its positional parameters; long output is cut in its middle.

        Nothing that it started outlives it, and cancelling ends it at once. Raises `Refused` where it cannot begin.
        """

    def stop(self, workspace: Workspace) -> bool:
        """Kill what is run there; ``False`` when nothing is."""
