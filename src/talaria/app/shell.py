"""Run a line of a shell for a person, in the folder of their conversation."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.shell import Ran
from talaria.contracts.tool import Workspace
from talaria.core.errors import Refused
from talaria.tools.output import join_cut, readable
from talaria.tools.terminal.processes import Child, Processes
from talaria.tools.terminal.shell import shell_argv

_MOST_BYTES = 8_000
_GRACE = timedelta(milliseconds=80)


class LocalShell:
    """Implements `Shell`; `close` ends what still runs."""

    def __init__(self) -> None:
        self._processes = Processes()
        self._running: dict[Child, Workspace] = {}

    async def run(self, line: str, words: Sequence[str], workspace: Workspace, *, seconds: float) -> Ran:
        """Run a line there, with ``words`` as its positional parameters; long output is cut in its middle."""
        ends = _Ends(_MOST_BYTES)
        try:
            child = await self._processes.start(
                [*shell_argv(line), *words],
                folder=workspace.folder,
                environment=workspace.environment,
                heard=ends.add,
            )
        except (OSError, ValueError) as error:
            raise Refused(f"`{line}` could not be started in {workspace.folder}: {error}.") from error
        self._running[child] = workspace
        try:
            code = await _ended(child, seconds)
        except asyncio.CancelledError:
            await child.end(_GRACE)
            raise
        finally:
            del self._running[child]
            self._processes.finish(child)
        return Ran(code, ends.text())

    def stop(self, workspace: Workspace) -> bool:
        """Kill what is run there; ``False`` when nothing is."""
        found = [child for child, place in self._running.items() if place is workspace]
        for child in found:
            child.kill()
        return bool(found)

    def close(self) -> None:
        """Kill all that runs."""
        self._processes.close()


async def _ended(child: Child, seconds: float) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        await child.end(_GRACE)
        code = None
    await child.hear_out()
    return code


class _Ends:
    """The beginning and the end of an output, however long it is."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail = (self._tail + piece[room:])[-self._half :]

    def text(self) -> str:
        missing = self._size - len(self._head) - len(self._tail)
        if not missing:
            return readable(bytes(self._head + self._tail))
        return join_cut(readable(bytes(self._head)), readable(bytes(self._tail)), missing=missing)
