"""What handles the events of a hook: a function in handler.py, or a command; called in a thread that is theirs."""

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

from talaria.contracts.hooks import Fact, context_of
from talaria.core.errors import TalariaError
from talaria.core.session_context import for_child
from talaria.core.umask import person_umask
from talaria.hooks.manifest import BrokenHook
from talaria.hooks.shelf import Hook

EVENT_VARIABLE = "TALARIA_HOOK_EVENT"
_KEPT_OUTPUT = 4000
_PIECE = 65536
_LAST_WORDS = 1.0


class Happening(Struct, frozen=True):
    """One event on its way to a hook."""

    event: str
    facts: dict[str, Fact]


class Overdue(TalariaError):
    """A hook took longer than it may."""


class CommandFailed(TalariaError):
    """A command of a hook ended with another exit code than 0."""


class Handler(Protocol):
    """Handles events, one at a time."""

    def handle(self, happening: Happening) -> str:
        """Handle an event and return what was printed; raises `Overdue`, `BrokenHook`, or whatever goes wrong."""

    def end(self) -> None:
        """Cut off what is running, as far as that can be done."""


def make_handler(hook: Hook, environment: Mapping[str, str]) -> Handler:
    """Return what handles the events of a hook; nothing of it is loaded yet."""
    if hook.manifest.run:
        return CommandHandler(hook, environment)
    return FunctionHandler(hook)


class FunctionHandler:
    """Implements `Handler` with ``handle(event, facts)`` of handler.py, which is loaded at the first event."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._function: Callable[[str, dict[str, Fact]], object] | None = None

    def handle(self, happening: Happening) -> str:
        """Call the function; one that waits gets an event loop of its own."""
        self._function = self._function or _load(self._hook)
        answer = self._function(happening.event, dict(happening.facts))
        if inspect.isawaitable(answer):
            asyncio.run(_within(answer, self._hook.manifest.timeout_seconds))
        return ""

    def end(self) -> None:
        """Do nothing: a thread cannot be ended, but no end waits for it either."""


class CommandHandler:
    """Implements `Handler` with a command, which gets the event as JSON and the conversation in its environment."""

    def __init__(self, hook: Hook, environment: Mapping[str, str]) -> None:
        self._hook = hook
        self._environment = environment
        self._running: set[int] = set()
        self._ended = False

    def handle(self, happening: Happening) -> str:
        """Run the command to its end; what it started and left behind is ended with it."""
        return asyncio.run(self._run(happening))

    def end(self) -> None:
        """Kill what is running, and what is just being started."""
        self._ended = True
        for pid in tuple(self._running):
            _kill(pid)

    async def _run(self, happening: Happening) -> str:
        own = {EVENT_VARIABLE: happening.event, "PWD": str(self._hook.folder)}
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._hook.manifest.run,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=self._hook.folder,
            env={**for_child(self._environment, context_of(happening.facts)), **own},
            start_new_session=True,
            umask=person_umask(),
        )
        self._running.add(child.pid)
        if self._ended:
            _kill(child.pid)
        heard = bytearray()
        try:
            await _within(_conversed(child, happening, heard), self._hook.manifest.timeout_seconds)
        finally:
            _kill(child.pid)
            await child.wait()
            self._running.discard(child.pid)
        said = heard.decode(errors="replace").strip()
        if child.returncode:
            raise CommandFailed(f"the command ended with {_ending(child.returncode)}{': ' if said else ''}{said}")
        return said


async def _conversed(child: Process, happening: Happening, heard: bytearray) -> None:
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(_listen(child, heard))
        await _fed(child, happening)
        _kill(child.pid)
        await asyncio.wait([listening], timeout=_LAST_WORDS)
        listening.cancel()


async def _fed(child: Process, happening: Happening) -> None:
    """Give a command its event, and wait for its end; one that does not read it is none the worse."""
    assert child.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(json.dumps({"event": happening.event, "facts": happening.facts}).encode() + b"\n")
        await child.stdin.drain()
    child.stdin.close()
    await child.wait()


async def _listen(child: Process, heard: bytearray) -> None:
    """Keep the last of what a command prints, however much that is."""
    assert child.stdout is not None
    while piece := await child.stdout.read(_PIECE):
        heard.extend(piece)
        del heard[:-_KEPT_OUTPUT]


async def _within(work: Awaitable[object], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds) as limit:
            await work
    except TimeoutError:
        if limit.expired():
            raise Overdue(f"it took longer than {seconds:g} s and was ended") from None
        raise


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _load(hook: Hook) -> Callable[[str, dict[str, Fact]], object]:
    """Run handler.py, as a package so that files beside it can be imported, and return its function."""
    module = _module(hook)
    try:
        assert module.__spec__ is not None
        assert module.__spec__.loader is not None
        module.__spec__.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BrokenHook(hook.handler, line_in(error, hook.folder), named(error)) from error
    function: Any = getattr(module, "handle", None)
    if not callable(function):
        raise BrokenHook(hook.handler, 1, "there is no function `handle(event, facts)` in it.")
    checked: Callable[[str, dict[str, Fact]], object] = function
    return checked


def _module(hook: Hook) -> ModuleType:
    name = f"talaria_hook_{hook.manifest.name}".replace(".", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, hook.handler, submodule_search_locations=[str(hook.folder)])
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return module


def named(error: BaseException) -> str:
    """Return an error of somebody else's code in a line."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def line_in(error: BaseException, folder: Path) -> int:
    """Return the last line in the files of a hook that an error passed; 1 where it passed none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if Path(frame.filename).parent == folder), 1)
