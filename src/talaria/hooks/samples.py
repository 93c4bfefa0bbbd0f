"""Events to try a hook with: made up, and like the real ones in every fact."""

from talaria.contracts.hooks import (
    AGENT_END,
    AGENT_START,
    AGENT_STEP,
    COMMAND,
    GATEWAY_START,
    SESSION_END,
    SESSION_RESET,
    SESSION_START,
    Fact,
    session_facts,
)
from talaria.core.errors import Refused
from talaria.core.session_context import SessionContext
from talaria.hooks.manifest import EVENTS, Manifest

_PLACE = SessionContext(
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
_TURN = {"turn_id": "sample-turn", "cwd": "."}
_OWN: dict[str, dict[str, Fact]] = {
    SESSION_START: {},
    SESSION_END: {"reason": "command"},
    SESSION_RESET: {"reason": "command", "previous_session_id": "session-before"},
    AGENT_START: {**_TURN, "text": "What is the weather like?"},
    AGENT_STEP: {
        **_TURN, "step": 2, "kind": "tool", "tool": "web_fetch", "failed": False, "text": "Sunny.", "seconds": 0.5,
    },
    AGENT_END: {**_TURN, "outcome": "answered", "text": "It is sunny.", "seconds": 3.2, "steps": 3},
}  # fmt: skip
_GATEWAY: dict[str, Fact] = {
    "worker": "sample",
    "pid": 1,
    "version": "0",
    "platforms": "telegram",
    "profile": "default",
}


def sample_event(manifest: Manifest) -> str:
    """Return the first event that a hook listens for."""
    known = next((event for event in EVENTS if manifest.hears(event)), "")
    named = next((pattern for pattern in manifest.events if pattern.startswith(COMMAND)), "")
    return known or named.replace("*", "status")


def sample_facts(event: str) -> dict[str, Fact]:
    """Return facts such as an event has, or raise `Refused` where there is no such event."""
    if event == GATEWAY_START:
        return dict(_GATEWAY)
    if event.startswith(COMMAND) and event != COMMAND:
        return {**session_facts(_PLACE), "command": event.removeprefix(COMMAND), "text": ""}
    if event not in _OWN:
        raise Refused(f"There is no event `{event}`; there are {', '.join(EVENTS)} and {COMMAND}NAME.")
    return {**session_facts(_PLACE), **_OWN[event]}
