"""Handlers of hook events: a function in handler.py or a command, called in the hook's thread."""

import asyncio
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from msgspec import Struct

from talaria.contracts.hooks import Fact, context_from_facts
from talaria.core.errors import TalariaError
from talaria.core.files import person_umask
from talaria.core.session_context import child_environment
from talaria.hooks.discovery import BrokenHook, Hook

EVENT_VARIABLE = "TALARIA_HOOK_EVENT"
_MAX_OUTPUT = 4000
_CHUNK_SIZE = 65536
_DRAIN_SECONDS = 1.0


class HookEvent(Struct, frozen=True):
    """An event to be handled by a hook."""

    event: str
    facts: dict[str, Fact]


class HookTimeout(TalariaError):
    """Error of a hook that exceeded its time limit."""


class CommandFailed(TalariaError):
    """Error of a hook command that ended with an exit code other than 0; ``code`` is negative for a signal."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"the command ended with {_describe_exit(code)}{': ' if output else ''}{output}")
        self.code = code
        self.output = output


class Handler(Protocol):
    """Handler of events, one at a time."""

    def handle(self, hook_event: HookEvent) -> str:
        """Handle an event and return the output.

        Raises `HookTimeout`, `BrokenHook`, or any error of the hook's code.
        """

    def end(self) -> None:
        """Interrupt what is running, as far as possible."""


def make_handler(hook: Hook, environment: Mapping[str, str]) -> Handler:
    """Return the handler of a hook, without loading its code."""
    if hook.manifest.run:
        return CommandHandler(hook, environment)
    return FunctionHandler(hook)


class FunctionHandler:
    """Implementation of `Handler` with ``handle(event, facts)`` of handler.py, loaded at the first event."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._function: Callable[[str, dict[str, Fact]], object] | None = None

    def handle(self, hook_event: HookEvent) -> str:
        """Call the function and return its text; a coroutine runs in its own event loop, with the time limit."""
        self._function = self._function or _load_function(self._hook)
        answer = self._function(hook_event.event, dict(hook_event.facts))
        if inspect.isawaitable(answer):
            answer = asyncio.run(_run_with_timeout(answer, self._hook.manifest.timeout_seconds))
        return answer.strip() if isinstance(answer, str) else ""

    def end(self) -> None:
        """Do nothing: a thread cannot be ended, and closing does not wait for it."""


class CommandHandler:
    """Implementation of `Handler` with a command.

    The command gets the event as JSON on standard input and the session context in its environment.
    """

    def __init__(self, hook: Hook, environment: Mapping[str, str]) -> None:
        self._hook = hook
        self._environment = environment
        self._running: set[int] = set()
        self._ended = False

    def handle(self, hook_event: HookEvent) -> str:
        """Run the command to its end, then kill the processes that it left running."""
        return asyncio.run(self._run(hook_event))

    def end(self) -> None:
        """Kill the running command, and one that is just being started."""
        self._ended = True
        for pid in tuple(self._running):
            _kill(pid)

    async def _run(self, hook_event: HookEvent) -> str:
        own = {EVENT_VARIABLE: hook_event.event, "PWD": str(self._hook.folder)}
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._hook.manifest.run,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=self._hook.folder,
            env={**child_environment(self._environment, context_from_facts(hook_event.facts)), **own},
            start_new_session=True,
            umask=person_umask(),
        )
        self._running.add(child.pid)
        if self._ended:
            _kill(child.pid)
        captured = bytearray()
        try:
            await _run_with_timeout(_exchange(child, hook_event, captured), self._hook.manifest.timeout_seconds)
        finally:
            _kill(child.pid)
            await child.wait()
            self._running.discard(child.pid)
        output = captured.decode(errors="replace").strip()
        if child.returncode:
            raise CommandFailed(child.returncode, output)
        return output


async def _exchange(child: Process, hook_event: HookEvent, captured: bytearray) -> None:
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(_read_output(child, captured))
        await _feed_event(child, hook_event)
        _kill(child.pid)
        await asyncio.wait([reader], timeout=_DRAIN_SECONDS)
        reader.cancel()


async def _feed_event(child: Process, hook_event: HookEvent) -> None:
    """Write the event to the command and wait for its end; it need not read the event."""
    assert child.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(json.dumps({"event": hook_event.event, "facts": hook_event.facts}).encode() + b"\n")
        await child.stdin.drain()
    child.stdin.close()
    await child.wait()


async def _read_output(child: Process, captured: bytearray) -> None:
    """Keep the last ``_MAX_OUTPUT`` bytes of a command's output."""
    assert child.stdout is not None
    while piece := await child.stdout.read(_CHUNK_SIZE):
        captured.extend(piece)
        del captured[:-_MAX_OUTPUT]


async def _run_with_timeout(work: Awaitable[object], seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise HookTimeout(f"it took longer than {seconds:g} s and was stopped") from None
        raise


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _load_function(hook: Hook) -> Callable[[str, dict[str, Fact]], object]:
    """Run handler.py as a package, so that neighbouring files can be imported, and return its function."""
    module = _make_module(hook)
    try:
        assert module.__spec__ is not None
        assert module.__spec__.loader is not None
        module.__spec__.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BrokenHook(hook.handler, find_error_line(error, hook.folder), format_error(error)) from error
    function: Any = getattr(module, "handle", None)
    if not callable(function):
        raise BrokenHook(hook.handler, 1, "it has no function `handle(event, facts)`.")
    checked: Callable[[str, dict[str, Fact]], object] = function
    return checked


def _make_module(hook: Hook) -> ModuleType:
    name = f"talaria_hook_{hook.manifest.name}".replace(".", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, hook.handler, submodule_search_locations=[str(hook.folder)])
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return module


def format_error(error: BaseException) -> str:
    """Format an error of a hook's code in one line."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def find_error_line(error: BaseException, folder: Path) -> int:
    """Return the last line in the hook's files in the traceback; 1 if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if Path(frame.filename).parent == folder), 1)
