"""Child processes and whatever they start: each has an owner, and none outlives it."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO

from talaria.core.system_processes import in_sessions, signal_all
from talaria.core.umask import person_umask

_CHUNK = 65_536
_LOOK_AGAIN = 0.005
_LAST_WORDS = 0.2
_MOST_TRIES = 40


class Child:
    """One running process with all that it started.

    It leads a session of its own, without a terminal. What moves to another session (``setsid``, a daemon) is
    out of reach, unless a sandbox holds it.

    Standard input is a lifeline: it ends when this process does, however that happens. Standard error is a
    private file, for what the child has to tell us alone (`notes`).
    """

    def __init__(self, process: asyncio.subprocess.Process, output: int, lifeline: int, notes: IO[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        self._output = output
        self._lifeline = lifeline
        self._notes = notes
        self._silent = asyncio.Event()
        self._gone = False

    @property
    def notes(self) -> bytes:
        """What the child wrote for us so far."""
        self._notes.seek(0)
        return self._notes.read()

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, as soon as the process itself has ended."""
        return await self._process.wait()

    def members(self) -> set[int]:
        """Return the processes that are alive of this one and all it started."""
        return in_sessions((self.pid,))

    async def end(self, grace: timedelta) -> None:
        """Ask the whole tree to stop, and kill what is left of it after ``grace``."""
        try:
            signal_all(self.members(), signal.SIGTERM)
            async with asyncio.timeout(grace.total_seconds()):
                while self.members():  # noqa: ASYNC110 - the system tells us of our own child only
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """Kill the whole tree at once, also where it grows meanwhile."""
        for _ in range(_MOST_TRIES):
            alive = self.members() if not self._gone else set()
            if not alive:
                self._gone = True
                return
            # The one at the top first: it must not have the time to notice what becomes of the others.
            signal_all(sorted(alive, key=lambda process: process != self.pid), signal.SIGKILL)

    def dismiss(self) -> None:
        """Kill the group, when nothing is left of it but what watches over it."""
        signal_all({-self.pid}, signal.SIGKILL)
        self._gone = True

    async def hear_out(self) -> None:
        """Wait for the end of the output; not for long, because an escaped process may hold it open."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._silent.wait()
        except TimeoutError:
            pass

    def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call ``heard`` with each piece of output, until it ends or `close` is called."""
        asyncio.get_running_loop().add_reader(self._output, self._read, heard)

    def close(self) -> None:
        """Kill what is left and give back what the system lent us."""
        self.kill()
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        os.close(self._lifeline)
        self._notes.close()

    def _read(self, heard: Callable[[bytes], None]) -> None:
        try:
            piece = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if piece:
            heard(piece)
        else:
            asyncio.get_running_loop().remove_reader(self._output)
            self._silent.set()


class Processes:
    """Owns the child processes of a conversation; `close` leaves none behind."""

    def __init__(self) -> None:
        self._running: set[Child] = set()

    async def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], heard: Callable[[bytes], None]
    ) -> Child:
        """Start a process there; ``heard`` gets standard output, piece by piece. Hand it to `finish` in the end."""
        output, child_output = os.pipe()
        child_lifeline, lifeline = os.pipe()
        notes = tempfile.TemporaryFile()  # noqa: SIM115 - the child owns it until it is finished
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, cwd=folder, env=environment, start_new_session=True,
                stdin=child_lifeline, stdout=child_output, stderr=notes, umask=person_umask(),
            )  # fmt: skip
        except BaseException:
            os.close(output)
            os.close(lifeline)
            notes.close()
            raise
        finally:
            os.close(child_output)
            os.close(child_lifeline)
        os.set_blocking(output, False)
        child = Child(process, output, lifeline, notes)
        self._running.add(child)
        child.listen(heard)
        return child

    @property
    def running(self) -> frozenset[Child]:
        """What was started and is not finished."""
        return frozenset(self._running)

    def finish(self, child: Child) -> None:
        """Kill what is left of a child and forget it."""
        self._running.discard(child)
        child.close()

    def close(self) -> None:
        """Kill all that runs."""
        for child in list(self._running):
            self.finish(child)
