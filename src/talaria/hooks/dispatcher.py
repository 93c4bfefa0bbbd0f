"""Dispatch events of the process and of turns to hooks, and let a hook veto tool calls."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import assert_never

from talaria.contracts.hooks import (
    AGENT_END,
    AGENT_START,
    AGENT_STEP,
    TOOL_CALL,
    Fact,
    Facts,
    Hooks,
    NoHooks,
    context_from_facts,
    session_facts,
)
from talaria.core.events import (
    ModelCalled,
    ToolAnswered,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.session_context import SessionContext, bound, current_context
from talaria.hooks.discovery import MANIFEST, BrokenHook, Hook, find_hooks, read_manifest
from talaria.hooks.handlers import CommandFailed, Handler, HookEvent, format_error, make_handler
from talaria.hooks.hook_queue import HookQueue

MAX_FACT_LENGTH = 4000
_CLOSE_SECONDS = 5.0
log = logging.getLogger(__name__)
_REFUSED_EXIT_CODE = 2
_VETO_GRACE = 0.5
_TOOL_EVENTS = "tool:"


class TurnHookEvents:
    """Subscriber of one open session that fires `AGENT_START`, `AGENT_STEP` and `AGENT_END`."""

    def __init__(self, fire: Callable[[str, Facts], None]) -> None:
        self._fire = fire
        self._started_at = time.monotonic()
        self._steps = 0

    def on_event(self, event: TurnEvent) -> None:
        """Fire the hook event for a turn event, if there is one."""
        match event:
            case TurnBegan():
                self._started_at, self._steps = time.monotonic(), 0
                self._fire_event(AGENT_START, {"text": event.text})
            case ModelCalled() | ToolAnswered():
                self._steps += 1
                self._fire_event(AGENT_STEP, {"step": self._steps, **_describe_step(event)})
            case TurnAnswered() | TurnStopped() | TurnOutOfBudget() | TurnFailed():
                outcome, text = _describe_outcome(event)
                seconds = round(time.monotonic() - self._started_at, 3)
                self._fire_event(
                    AGENT_END, {"outcome": outcome, "text": text, "seconds": seconds, "steps": self._steps}
                )

    def _fire_event(self, name: str, facts: dict[str, Fact]) -> None:
        self._fire(name, {**session_facts(current_context() or SessionContext()), **facts})


def _describe_step(event: ModelCalled | ToolAnswered) -> dict[str, Fact]:
    match event:
        case ModelCalled(model=model, usage=usage):
            return {
                "kind": "model",
                "model": model,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
            }
        case ToolAnswered(result=result, name=name, seconds=seconds):
            return {
                "kind": "tool",
                "tool": name,
                "failed": result.failed,
                "text": result.text,
                "seconds": round(seconds, 3),
            }


def _describe_outcome(end: TurnEnd) -> tuple[str, str]:
    match end:
        case TurnAnswered(text):
            return "answered", text
        case TurnStopped():
            return "stopped", ""
        case TurnOutOfBudget(text=text):
            return "out_of_budget", text
        case TurnFailed(text):
            return "failed", text
        case _:
            assert_never(end)


def open_hooks(folder: Path, environment: Mapping[str, str]) -> Hooks:
    """Return the enabled hooks in a folder; problems of the others are logged."""
    queues, broken = [], []
    for found in find_hooks(folder):
        if not isinstance(found, Hook):
            log.warning("ignoring a hook: %s", found.problem)
            broken += [found.problem] if is_veto_folder(found.folder) else []
        elif found.manifest.enabled:
            queues.append(HookQueue(found, make_handler(found, environment)))
    return HookDispatcher(queues, environment, broken) if queues or broken else NoHooks()


class HookDispatcher:
    """Implementation of `Hooks`; ``broken`` are problems of hooks that should be asked before calls."""

    def __init__(self, queues: Sequence[HookQueue], environment: Mapping[str, str], broken: Sequence[str] = ()) -> None:
        self._queues = queues
        self._broken = broken
        self._veto_hooks = [VetoHook(one.hook, environment) for one in queues if one.hook.manifest.may_veto]

    def fire(self, event: str, facts: Facts) -> None:
        """Queue an event for every hook that listens for it."""
        listeners = [queue for queue in self._queues if queue.hook.manifest.listens_to(event)]
        if listeners:
            hook_event = HookEvent(event, {name: _truncate(fact) for name, fact in facts.items()})
            for queue in listeners:
                queue.put(hook_event)

    def turn_subscriber(self) -> Callable[[TurnEvent], None]:
        """Return a subscriber that fires the ``agent:`` events of one open session."""
        return TurnHookEvents(self.fire).on_event

    async def veto(self, facts: Facts) -> str:
        """Return why a hook refuses a tool call; hooks are asked one after the other, until one refuses."""
        if self._broken:
            return f"A hook that is asked before every call can't be used: {self._broken[0]}"
        for hook in self._veto_hooks:
            if reason := await hook.ask(facts):
                return reason
        return ""

    async def close(self) -> None:
        """Wait up to ``_CLOSE_SECONDS`` for all hooks together, then end what still runs."""
        await asyncio.to_thread(self._finish, time.monotonic() + _CLOSE_SECONDS)

    def _finish(self, until: float) -> None:
        for queue in self._queues:
            queue.finish(until)
        for queue in self._queues:
            queue.close()


def _truncate(fact: Fact) -> Fact:
    if isinstance(fact, str) and len(fact) > MAX_FACT_LENGTH:
        return f"{fact[: MAX_FACT_LENGTH - 1]}…"
    return fact


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
            reason = _run_veto(handler, facts, is_command=self._function is None)
            with suppress(RuntimeError):  # the program is ending
                loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(reason))

        name, seconds = self._hook.manifest.name, self._hook.manifest.timeout_seconds
        threading.Thread(target=work, name=f"hook-{name}", daemon=True).start()
        try:
            async with asyncio.timeout(seconds + _VETO_GRACE):
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


def _run_veto(handler: Handler, facts: Facts, *, is_command: bool) -> str:
    with bound(context_from_facts(facts)):
        try:
            text = handler.handle(HookEvent(TOOL_CALL, dict(facts)))
        except CommandFailed as error:
            refused = error.code == _REFUSED_EXIT_CODE
            return (error.output or "it gave no reason") if refused else f"it failed: {error}"
        except BaseException as error:  # noqa: BLE001 (no error of a hook may get further)
            return f"it failed: {format_error(error)}"
    return "" if is_command else text
