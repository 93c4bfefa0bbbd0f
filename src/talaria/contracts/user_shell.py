"""Shell commands that a person runs, as opposed to a model."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.contracts.tool import Workspace


class ShellResult(Struct, frozen=True):
    """The result of a command: exit code, negative for a signal, ``None`` after a time-out; and its output."""

    code: int | None
    output: str


class UserShell(Protocol):
    """The shell of this machine."""

    async def run(self, line: str, arguments: Sequence[str], workspace: Workspace, *, seconds: float) -> ShellResult:
        """Run a command, with ``arguments`` as its positional parameters; long output is cut in the middle.

        Its child processes end with it, and cancelling ends it at once. Raises `Refused` if it can't start.
        """

    def stop(self, workspace: Workspace) -> bool:
        """Kill the running command; ``False`` if there is none."""
