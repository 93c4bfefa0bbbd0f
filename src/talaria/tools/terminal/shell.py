"""Commands in a shell that restores and reports its folder and variables; no child process outlives its owner."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO

from msgspec import Struct

from talaria.contracts.sandbox import SandboxPrograms
from talaria.core.files import person_umask
from talaria.core.os_processes import list_session_processes, signal_all

_CHUNK = 65_536
_POLL_INTERVAL = 0.005
_LAST_WORDS = 0.2
_MOST_TRIES = 40
_MARK = "__talaria_"
# One line, so that line numbers in the shell's messages are those of the command. Descriptor 8 is the lifeline: a
# watcher waits for its end and then kills the whole group, itself included. Descriptor 9 is for us alone: first the
# watcher's id, at the end the folder and the environment.
_FAREWELL = "; ".join(
    (
        f"{{ {_MARK}code=$?; set +exu; }} 2>/dev/null",
        f'{{ pwd; printf "\\0"; "${_MARK}env" -0; }} >&9 2>/dev/null',
        f"exit ${_MARK}code",
    )
)
_WRAPPER = "; ".join(
    (
        "exec 8<&0 9>&2 2>&1 </dev/null",
        f"{_MARK}env=$1 {_MARK}command=$2",
        "printf '%s\\0' \"$( (read -r _ <&8; kill -9 0) >/dev/null 2>&1 9>&- & echo $!)\" >&9",
        "exec 8<&-",
        "shift 2",
        f"trap '{_FAREWELL}' EXIT",
        f'eval "${_MARK}command"',
    )
)
_OF_THE_SHELL = ("_", "SHLVL")


class Child:
    """A running process with all its descendants.

    It leads its own session, without a terminal. Descendants that move to another session (``setsid``, a daemon) are
    out of reach, unless a sandbox holds them.

    Standard input is a lifeline: it closes when our process ends for any reason. Standard error is a private file with
    the child's notes for us (`notes`).
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
        """Return what the child has written for us so far."""
        self._notes.seek(0)
        return self._notes.read()

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, as soon as the process itself has ended."""
        return await self._process.wait()

    def list_members(self) -> set[int]:
        """Return the live processes of this tree."""
        return list_session_processes((self.pid,))

    async def end(self, grace: timedelta) -> None:
        """Ask the whole tree to stop, and kill the rest after ``grace``."""
        try:
            signal_all(self.list_members(), signal.SIGTERM)
            async with asyncio.timeout(grace.total_seconds()):
                while self.list_members():  # noqa: ASYNC110 - the system tells us of our own child only
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """Kill the whole tree at once, including processes started meanwhile."""
        for _ in range(_MOST_TRIES):
            alive = self.list_members() if not self._gone else set()
            if not alive:
                self._gone = True
                return
            # The root first: it must not have time to notice that its children end.
            signal_all(sorted(alive, key=lambda process: process != self.pid), signal.SIGKILL)

    def dismiss(self) -> None:
        """Kill the group when only its watcher is left."""
        signal_all({-self.pid}, signal.SIGKILL)
        self._gone = True

    async def wait_for_output_end(self) -> None:
        """Wait for the end of the output; briefly, because an escaped process may hold it open."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._silent.wait()
        except TimeoutError:
            pass

    def listen(self, on_output: Callable[[bytes], None]) -> None:
        """Call ``on_output`` with each piece of output, until it ends or `close` is called."""
        asyncio.get_running_loop().add_reader(self._output, self._read, on_output)

    def close(self) -> None:
        """Kill the rest and close all file descriptors."""
        self.kill()
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        os.close(self._lifeline)
        self._notes.close()

    def _read(self, on_output: Callable[[bytes], None]) -> None:
        try:
            piece = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if piece:
            on_output(piece)
        else:
            asyncio.get_running_loop().remove_reader(self._output)
            self._silent.set()


class Processes:
    """Owner of a session's child processes; `close` leaves none behind."""

    def __init__(self) -> None:
        self._running: set[Child] = set()

    async def start(
        self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], on_output: Callable[[bytes], None]
    ) -> Child:
        """Start a process there; ``on_output`` gets standard output, piece by piece. Pass it to `finish` at the end."""
        output, child_output = os.pipe()
        child_lifeline, lifeline = os.pipe()
        import tempfile  # noqa: PLC0415 (loaded with the first command)

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
        child.listen(on_output)
        return child

    @property
    def running(self) -> frozenset[Child]:
        """Return the started and unfinished processes."""
        return frozenset(self._running)

    def finish(self, child: Child) -> None:
        """Kill the rest of a child's tree and drop it."""
        self._running.discard(child)
        child.close()

    def close(self) -> None:
        """Kill everything that is running."""
        for child in list(self._running):
            self.finish(child)


class Ending(Struct, frozen=True):
    """The final state of a shell: its folder and exports, if it lived to report them."""

    watcher: int | None = None
    folder: Path | None = None
    environment: Mapping[str, str] | None = None


def build_shell_argv(command: str, programs: SandboxPrograms | None = None) -> list[str]:
    """Return the call of a shell that runs ``command`` and writes its `Ending` to the notes of its `Child`."""
    own = programs or _find_programs()
    name = "bash" if len(own.shell) > 1 else "sh"
    return [*own.shell, "-c", _WRAPPER, name, own.env, command]


def build_plain_argv(command: str, programs: SandboxPrograms | None = None) -> list[str]:
    """Return the call of a shell that runs ``command`` and reports nothing."""
    return [*(programs or _find_programs()).shell, "-c", command]


def read_ending(notes: bytes) -> Ending:
    """Return the shell's report; for a shell that was killed or replaced by ``exec``, only the watcher.

    A start-up file on another host may have printed something before it.
    """
    first, found, rest = notes.partition(b"\0")
    watcher = first[len(first.rstrip(b"0123456789")) :]
    if not watcher or not found:
        return Ending()
    folder, found, variables = rest.partition(b"\n\0")
    if not found:
        return Ending(int(watcher))
    return Ending(int(watcher), Path(os.fsdecode(folder)), _parse_environment(variables))


def merge_environment(
    current: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Return ``current`` with the changes of a command: parallel commands keep each other's exports."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    removed = before.keys() - after.keys()
    return {name: value for name, value in {**current, **changed}.items() if name not in removed}


def _find_programs() -> SandboxPrograms:
    """Return the programs of this machine."""
    from shutil import which  # noqa: PLC0415 (loaded with the first command)

    bash = which("bash")
    shell = (bash, "--noprofile", "--norc") if bash else (which("sh") or "/bin/sh",)
    return SandboxPrograms(shell, (), which("env") or "/usr/bin/env")


def _parse_environment(raw: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {
        name: value for name, _, value in pairs if name and name not in _OF_THE_SHELL and not name.startswith(_MARK)
    }
