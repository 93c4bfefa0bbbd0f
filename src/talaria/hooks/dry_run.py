"""Dry run of a hook with a sample event that has all facts of a real one."""

import time
from collections.abc import Mapping

from talaria.contracts.hooks import (
    AGENT_END,
    AGENT_START,
    AGENT_STEP,
    COMMAND,
    GATEWAY_START,
    SESSION_END,
    SESSION_RESET,
    SESSION_START,
    TOOL_CALL,
    Fact,
    session_facts,
)
from talaria.core.errors import Refused
from talaria.core.session_context import SessionContext
from talaria.hooks.discovery import Hook
from talaria.hooks.handlers import HookEvent, make_handler
from talaria.hooks.hook_queue import HookQueue, HookReport
from talaria.hooks.manifest import EVENTS, HookManifest

_SAMPLE_CONTEXT = SessionContext(
    platform="telegram",
    source="telegram",
    chat_id="1000",
    chat_name="Family",
    user_id="1000",
    user_name="Ann",
    session_key="agent:main:telegram:private:1000",
    session_id="sample-session",
    message_id="7",
)


_SAMPLE_TURN = {"turn_id": "sample-turn", "cwd": "."}


_SAMPLE_FACTS: dict[str, dict[str, Fact]] = {
    SESSION_START: {},
    SESSION_END: {"reason": "command"},
    SESSION_RESET: {"reason": "command", "previous_session_id": "session-before"},
    AGENT_START: {**_SAMPLE_TURN, "text": "What is the weather like?"},
    AGENT_STEP: {
        **_SAMPLE_TURN, "step": 2, "kind": "tool", "tool": "web_fetch", "failed": False, "text": "Sunny.",
        "seconds": 0.5,
    },
    TOOL_CALL: {**_SAMPLE_TURN, "tool": "terminal", "kind": "command", "target": "ls", "effect": "irreversible"},
    AGENT_END: {**_SAMPLE_TURN, "outcome": "answered", "text": "It is sunny.", "seconds": 3.2, "steps": 3},
}  # fmt: skip


_SAMPLE_GATEWAY: dict[str, Fact] = {
    "worker": "sample",
    "pid": 1,
    "version": "0",
    "platforms": "telegram",
    "profile": "default",
}


def pick_sample_event(manifest: HookManifest) -> str:
    """Return the first event that a hook listens for."""
    known = next((event for event in EVENTS if manifest.hears(event)), "")
    named = next((pattern for pattern in manifest.events if pattern.startswith(COMMAND)), "")
    return known or named.replace("*", "status")


def make_sample_facts(event: str) -> dict[str, Fact]:
    """Return sample facts of an event, or raise `Refused` if there is no such event."""
    if event == GATEWAY_START:
        return dict(_SAMPLE_GATEWAY)
    if event.startswith(COMMAND) and event != COMMAND:
        return {**session_facts(_SAMPLE_CONTEXT), "command": event.removeprefix(COMMAND), "text": ""}
    if event not in _SAMPLE_FACTS:
        raise Refused(f"There is no event `{event}`. Available: {', '.join(EVENTS)} and {COMMAND}NAME.")
    return {**session_facts(_SAMPLE_CONTEXT), **_SAMPLE_FACTS[event]}


_GRACE = 5.0


def try_hook(hook: Hook, event: str, environment: Mapping[str, str]) -> HookReport:
    """Run a hook with a sample event, by default its first one, and return the report.

    Raises `Refused` if the hook does not listen for the event or could not be started.
    """
    event = event or pick_sample_event(hook.manifest)
    facts = make_sample_facts(event)
    if not hook.manifest.hears(event):
        raise Refused(
            f"The hook {hook.manifest.name} doesn't listen for {event}, only for {' '.join(hook.manifest.events)}."
        )
    reports: list[HookReport] = []
    queue = HookQueue(hook, make_handler(hook, environment), reports.append)
    queue.put(HookEvent(event, facts))
    queue.finish(time.monotonic() + hook.manifest.timeout_seconds + _GRACE)
    if not reports:
        raise Refused(f"The hook {hook.manifest.name} couldn't be started.")
    return reports[0]
