"""The terminal tool: run commands in the foreground or in the background."""

import asyncio
import codecs
import posixpath
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, Annotated

from msgspec import Meta, Struct

from talaria.contracts.background_processes import BackgroundWork, ProcessRequest
from talaria.contracts.sandbox import Sandbox, SandboxCommand, SandboxedCall
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.output import OUTPUT_LIMIT, FullOutputs, join_cut, make_readable
from talaria.tools.terminal.shell import (
    Child,
    Ending,
    Processes,
    build_plain_argv,
    build_shell_argv,
    merge_environment,
    read_ending,
)

FILE_LIMIT = 64 * 1024 * 1024
_PACE = 0.1
_GRACE_AFTER_TIME = timedelta(seconds=2)
_GRACE_WHEN_STOPPED = timedelta(milliseconds=80)
_LONGEST_COMMAND = 100_000
_NOBODY_TO_WAKE = (
    "notify_on_complete and watch_patterns are off: this conversation can't be woken here. Check the process "
    "with the process tool, action poll or wait, id {id}"
)


class Capture:
    """The output of one command; ``make_path`` returns a path for the whole of it when needed."""

    def __init__(self, make_path: Callable[[], Path], *, limit: int = OUTPUT_LIMIT) -> None:
        self._make_path = make_path
        self._limit = limit
        self._kept = bytearray()
        self._tail = bytearray()
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, piece: bytes) -> None:
        """Add the next piece of the output."""
        self._size += len(piece)
        if self._file is None and self._size <= self._limit:
            self._kept += piece
            return
        if self._file is None:
            piece = self._open_file(piece)
        self._tail = (self._tail + piece)[-self._limit // 2 :]
        self._save(piece)

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def format_output(self) -> str:
        """Return the output for the model: cut in the middle if it is long."""
        if self._file is None:
            return make_readable(bytes(self._kept))
        head, tail = make_readable(bytes(self._kept)), make_readable(_drop_split_character(self._tail))
        missing = self._size - len(self._kept) - len(self._tail)
        whole = "the whole output" if self._size <= FILE_LIMIT else f"its first {FILE_LIMIT:,} bytes"
        return join_cut(head, tail, missing=missing, rest=f"{whole} is in {self._file.name}; use read_file")

    def _open_file(self, piece: bytes) -> bytes:
        """Open the file, keep the head, and return what follows it."""
        whole, half = bytes(self._kept) + piece, self._limit // 2
        self._kept = bytearray(whole[:half])
        self._file = self._make_path().open("xb")
        self._file.write(self._kept)
        return whole[half:]

    def _save(self, piece: bytes) -> None:
        assert self._file is not None
        room = FILE_LIMIT - self._file.tell()
        if room > 0:
            self._file.write(piece[:room])


class Pieces:
    """Converts raw output to text for a watching person, in whole characters and at a readable pace."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    def add(self, piece: bytes) -> None:
        """Add the next piece of the output."""
        self._waiting += self._decoder.decode(piece)
        if len(self._waiting) > 2 * OUTPUT_LIMIT:
            self._waiting = "…" + self._waiting[-OUTPUT_LIMIT:]

    def flush(self, *, last: bool = False) -> None:
        """Show new output: whole lines where there are any, everything at the end."""
        cut = len(self._waiting) if last else self._waiting.rfind("\n") + 1 or len(self._waiting)
        text, self._waiting = self._waiting[:cut], self._waiting[cut:]
        if text:
            self._show(make_readable(text.encode()))


def _drop_split_character(raw: bytearray) -> bytes:
    """Return the bytes from the first whole character on: a cut may have split one."""
    start = 0
    while start < min(3, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return bytes(raw[start:])


class TerminalArguments(Struct, frozen=True):
    """A command, its folder and its time limit."""

    command: str
    timeout_seconds: Annotated[int, Meta(ge=1, le=600, description="default 60")] = 60
    workdir: Annotated[str, Meta(description="folder for this call only")] = ""
    background: Annotated[bool, Meta(description="return at once; see process")] = False
    notify_on_complete: Annotated[bool, Meta(description="wake me when it ends")] = True
    watch_patterns: Annotated[list[str], Meta(description="wake me on output lines containing one of these texts")] = []
    pty: Annotated[bool, Meta(description="background only")] = False


class Terminal:
    """Runs shell commands on this machine, in a sandbox where one is given."""

    name = "terminal"
    description = (
        "Run a shell command. The working folder and exported variables carry over to the next call; no stdin, "
        "no TTY. Anything still running at the end or after timeout_seconds is killed, unless in the "
        "background."
    )
    effect = Effect.IRREVERSIBLE
    arguments = TerminalArguments

    def __init__(
        self,
        processes: Processes,
        outputs: FullOutputs,
        *,
        sandbox: Sandbox | None = None,
        background: BackgroundWork | None = None,
    ) -> None:
        self._processes = processes
        self._background = background
        self._outputs = outputs
        self._sandbox = sandbox

    def proposed_action(self, arguments: TerminalArguments) -> ProposedAction:
        """Describe what would be run, and where, in shell syntax."""
        import shlex  # noqa: PLC0415 (loaded with the first command)

        where = f"cd {shlex.quote(arguments.workdir)} && " if arguments.workdir else ""
        return ProposedAction("command", where + arguments.command)

    async def run(self, arguments: TerminalArguments, call: Call) -> ToolOutput:
        """Run the command and return its output and exit code."""
        _check(arguments.command)
        remarks: list[str] = []
        folder = await self._find_folder(arguments, call, remarks)
        if arguments.background:
            return await self._start_in_background(arguments, folder, call, remarks)
        if arguments.pty:
            raise ToolFailed("A pty works only for background processes. Set background, then write to it.")
        before = call.environment
        launch = self._launch(arguments, folder, before)
        capture = Capture(lambda: self._outputs.make_path(call.session_id))
        pieces = Pieces(call.progress)

        def add_output(piece: bytes) -> None:
            capture.add(piece)
            pieces.add(piece)

        child = await self._start(launch, add_output)
        try:
            code = await self._watch(child, arguments.timeout_seconds, pieces, remarks)
            notes = child.notes
            if code is None:
                await _end_inside(launch)
        except asyncio.CancelledError:
            await child.end(_GRACE_WHEN_STOPPED)
            await _end_inside(launch)
            raise
        finally:
            self._processes.finish(child)
            capture.close()
        printed = capture.format_output()
        if self._sandbox is not None:
            _check_started(self._sandbox, notes, code)
            remarks += self._sandbox.remarks(printed, code)
        self._remember(call, read_ending(notes), before, remarks, keep_folder=bool(arguments.workdir))
        return _answer(printed, code, remarks)

    def _launch(self, arguments: TerminalArguments, folder: str, environment: dict[str, str]) -> SandboxedCall:
        """Return the call of the shell, in the sandbox or without one."""
        if self._sandbox is None:
            return SandboxedCall(tuple(build_shell_argv(arguments.command)), Path(folder), environment)
        return self._sandbox.call(
            SandboxCommand(build_shell_argv(arguments.command, self._sandbox.programs), folder, environment)
        )

    async def _find_folder(self, arguments: TerminalArguments, call: Call, remarks: list[str]) -> str:
        """Return the folder for a command; starts the sandbox, whose folders may be others than ours."""
        if self._sandbox is not None:
            await self._sandbox.start()
            if self._sandbox.programs is not None:
                return posixpath.join(self._sandbox.folder(call.workspace), arguments.workdir)
        return str(_resolve_folder(arguments, call, remarks))

    def _remember(
        self, call: Call, ending: Ending, before: dict[str, str], remarks: list[str], *, keep_folder: bool
    ) -> None:
        """Store the folder and the exports of a command for the next one."""
        workspace, sandbox = call.workspace, self._sandbox
        if ending.environment is not None:
            after = sandbox.exports(before, ending.environment) if sandbox else ending.environment
            workspace.set_environment(merge_environment(workspace.environment, before, after))
        if keep_folder or ending.folder is None:
            return
        if sandbox is not None:
            was = sandbox.folder(workspace)
            sandbox.move(workspace, str(ending.folder))
            now = sandbox.folder(workspace)
        else:
            was = str(workspace.folder)
            if ending.folder.is_dir():
                workspace.move_to(ending.folder)
            now = str(workspace.folder)
        if was != now:
            remarks.append(f"now in {now}")

    async def _start_in_background(
        self, arguments: TerminalArguments, folder: str, call: Call, remarks: list[str]
    ) -> ToolOutput:
        """Start a background command, and say how its end is reported."""
        if self._background is None:
            raise ToolFailed("Background processes are not available here.")
        launch = SandboxedCall(tuple(build_plain_argv(arguments.command)), Path(folder), call.environment)
        if self._sandbox is not None:
            argv = build_plain_argv(arguments.command, self._sandbox.programs)
            launch = self._sandbox.call(SandboxCommand(argv, folder, call.environment, tty=arguments.pty, lasting=True))
            remarks.append(self._sandbox.description)
        can_wake = call.context.async_delivery
        request = ProcessRequest(
            command=arguments.command,
            argv=launch.argv,
            folder=str(launch.folder),
            environment=launch.environment,
            end=launch.end,
            notify=arguments.notify_on_complete and can_wake,
            patterns=tuple(filter(None, arguments.watch_patterns)) if can_wake else (),
            pty=arguments.pty,
        )
        process = await self._background.start(request, call)
        if not can_wake and (arguments.notify_on_complete or arguments.watch_patterns):
            remarks.append(_NOBODY_TO_WAKE.format(id=process.id))
        begun = f"Started in the background: process {process.id}, pid {process.pid}."
        notice = " You will be notified when it ends." if request.notify else ""
        return ToolOutput("\n".join((begun + notice, *(f"[{remark}]" for remark in remarks))))

    async def _start(self, launch: SandboxedCall, on_output: Callable[[bytes], None]) -> Child:
        try:
            return await self._processes.start(
                launch.argv, folder=launch.folder, environment=launch.environment, on_output=on_output
            )
        except OSError as error:
            raise ToolFailed(f"The command couldn't be started: {error}") from error

    async def _watch(self, child: Child, seconds: int, pieces: Pieces, remarks: list[str]) -> int | None:
        """Return the exit code once nothing is running any more; ``None`` after a time-out."""
        code: int | None = None
        async with asyncio.TaskGroup() as group:
            pacing = group.create_task(_flush_regularly(pieces))
            try:
                async with asyncio.timeout(seconds):
                    code = await child.wait()
                await self._end_rest(child, remarks)
            except TimeoutError:
                remarks.append(f"stopped after {seconds} s, including all its child processes")
                await child.end(_GRACE_AFTER_TIME)
            await child.wait_for_output_end()
            pacing.cancel()
        pieces.flush(last=True)
        return code

    async def _end_rest(self, child: Child, remarks: list[str]) -> None:
        """End the processes that the command left in the background.

        The watcher of the shell doesn't count. A sandbox ends with its first process; its other processes end by
        themselves.
        """
        rest = child.list_members() - {read_ending(child.notes).watcher}
        if rest and self._sandbox is None:
            remarks.append(f"ended {len(rest)} background process(es) of this command with it")
            await child.end(_GRACE_WHEN_STOPPED)
        elif rest:
            child.kill()
        else:
            child.dismiss()


def _answer(printed: str, code: int | None, remarks: list[str]) -> ToolOutput:
    """Return the result for the model; a command that ran out of time has failed."""
    text = printed.rstrip("\n") or "(no output)"
    if code is None:
        raise ToolFailed("\n".join((text, *(f"[{remark}]" for remark in remarks))))
    return ToolOutput("\n".join((text, *(f"[{remark}]" for remark in (*remarks, _describe_exit_code(code))))))


def _check(command: str) -> None:
    if not command.strip():
        raise ToolFailed("The command is empty.")
    if "\0" in command:
        raise ToolFailed("The command contains a NUL character.")
    if len(command.encode("utf-8", "replace")) > _LONGEST_COMMAND:
        raise ToolFailed(f"The command is longer than {_LONGEST_COMMAND:,} bytes. Write it to a file and run that.")


def _resolve_folder(arguments: TerminalArguments, call: Call, remarks: list[str]) -> Path:
    if arguments.workdir:
        folder = call.workspace.resolve(arguments.workdir)
        if not folder.is_dir():
            raise ToolFailed(f"The folder {folder} doesn't exist.")
        return folder
    folder = call.workspace.folder
    if folder.is_dir():
        return folder
    there = next(parent for parent in folder.parents if parent.is_dir())
    remarks.append(f"the folder {folder} no longer exists; ran in {there}")
    call.workspace.move_to(there)
    return there


async def _flush_regularly(pieces: Pieces) -> None:
    while True:
        await asyncio.sleep(_PACE)
        pieces.flush()


async def _end_inside(launch: SandboxedCall) -> None:
    if launch.end:
        from talaria.tools.sandbox.client_program import end_inside  # noqa: PLC0415 (loaded where it is needed)

        await end_inside(launch.end, launch.environment)


def _check_started(sandbox: Sandbox, notes: bytes, code: int | None) -> None:
    """Raise `ToolFailed` if the sandbox's own program failed before the shell started."""
    if code and notes and read_ending(notes).watcher is None:
        raise ToolFailed(f"The command didn't run. {sandbox.explain_failure(make_readable(notes))}")


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"
