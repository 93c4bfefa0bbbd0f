"""Shell commands that a person runs in the folder of their session."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.tool import Workspace
from talaria.contracts.user_shell import ShellResult
from talaria.core.errors import Refused
from talaria.tools.output import join_cut, readable
from talaria.tools.terminal.processes import Child, Processes
from talaria.tools.terminal.shell import shell_argv

_MAX_BYTES = 8_000
_GRACE = timedelta(milliseconds=80)


class LocalShell:
    """Implementation of `UserShell`; `close` kills what still runs."""

    def __init__(self) -> None:
        self._processes = Processes()
        self._running: dict[Child, Workspace] = {}

    async def run(self, line: str, arguments: Sequence[str], workspace: Workspace, *, seconds: float) -> ShellResult:
        """Run a line with ``arguments`` as its positional parameters; long output is cut in the middle.

        The exit code is ``None`` after ``seconds``. Raises `Refused` if the line could not be started.
        """
        output = _HeadAndTail(_MAX_BYTES)
        try:
            child = await self._processes.start(
                [*shell_argv(line), *arguments],
                folder=workspace.folder,
                environment=workspace.environment,
                heard=output.add,
            )
        except (OSError, ValueError) as error:
            raise Refused(f"`{line}` couldn't be started in {workspace.folder}: {error}.") from error
        self._running[child] = workspace
        try:
            code = await _wait_for_exit(child, seconds)
        except asyncio.CancelledError:
            await child.end(_GRACE)
            raise
        finally:
            del self._running[child]
            self._processes.finish(child)
        return ShellResult(code, output.text())

    def stop(self, workspace: Workspace) -> bool:
        """Kill the commands running in a workspace; ``False`` if there are none."""
        found = [child for child, running_workspace in self._running.items() if running_workspace is workspace]
        for child in found:
            child.kill()
        return bool(found)

    def close(self) -> None:
        """Kill all running commands."""
        self._processes.close()


async def _wait_for_exit(child: Child, seconds: float) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        await child.end(_GRACE)
        code = None
    await child.hear_out()
    return code


class _HeadAndTail:
    """The beginning and the end of an output of any length."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        space = self._half - len(self._head)
        self._head += piece[:space]
        self._tail = (self._tail + piece[space:])[-self._half :]

    def text(self) -> str:
        missing = self._size - len(self._head) - len(self._tail)
        if not missing:
            return readable(bytes(self._head + self._tail))
        return join_cut(readable(bytes(self._head)), readable(bytes(self._tail)), missing=missing)
