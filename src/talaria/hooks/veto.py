"""Veto of tool calls: ask a hook before a call runs, and refuse the call if it doesn't answer."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from talaria.contracts.hooks import TOOL_CALL, Facts, context_from_facts
from talaria.core.session_context import bound
from talaria.hooks.discovery import Hook
from talaria.hooks.handlers import CommandFailed, Handler, HookEvent, format_error, make_handler
from talaria.hooks.manifest import MANIFEST, BrokenHook, read_manifest

_REFUSED_EXIT_CODE = 2
_GRACE = 0.5
_TOOL_EVENTS = "tool:"
log = logging.getLogger(__name__)


class VetoHook:
    """A hook that is asked before each tool call.

    A function refuses by returning a text, a command with exit code 2 and its output. An error, any other exit code, or
    no answer within ``timeout_seconds`` refuses the call as well: a broken guard must not let everything pass.
    """

    def __init__(self, hook: Hook, environment: Mapping[str, str]) -> None:
        self._hook = hook
        self._environment = environment
        self._function = None if hook.manifest.run else make_handler(hook, environment)

    async def ask(self, facts: Facts) -> str:
        """Return why the hook refuses a call; empty if it allows it."""
        handler, loop = self._function or make_handler(self._hook, self._environment), asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def work() -> None:  # in a thread of its own, because a function can't be interrupted
            reason = _run(handler, facts, is_command=self._function is None)
            with suppress(RuntimeError):  # the program is ending
                loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(reason))

        name, seconds = self._hook.manifest.name, self._hook.manifest.timeout_seconds
        threading.Thread(target=work, name=f"hook-{name}", daemon=True).start()
        try:
            async with asyncio.timeout(seconds + _GRACE):
                reason = await answer
        except TimeoutError:
            reason = f"it didn't answer within {seconds:g} s"
        finally:
            handler.end()
        if not reason:
            return ""
        log.info("hook %s refused a call: %s", name, reason)
        return f"The hook {name} refused it: {reason}"


def is_veto_folder(folder: Path) -> bool:
    """Return whether an unusable hook should be asked before tool calls, judging by its manifest."""
    file = folder / MANIFEST
    try:
        manifest = read_manifest(file)
    except BrokenHook:
        return file.is_file() and _TOOL_EVENTS in file.read_text(errors="replace")
    return manifest.enabled and manifest.may_veto


def _run(handler: Handler, facts: Facts, *, is_command: bool) -> str:
    with bound(context_from_facts(facts)):
        try:
            text = handler.handle(HookEvent(TOOL_CALL, dict(facts)))
        except CommandFailed as error:
            refused = error.code == _REFUSED_EXIT_CODE
            return (error.output or "it gave no reason") if refused else f"it failed: {error}"
        except BaseException as error:  # noqa: BLE001 (no error of a hook may get further)
            return f"it failed: {format_error(error)}"
    return "" if is_command else text
