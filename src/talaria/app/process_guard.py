"""Guard of every Talaria process: tools cannot change the policy through it, others cannot read its memory."""

import ctypes
import sys
from collections.abc import Sequence

from talaria.core.own_commands import OwnCommand, is_policy_variable, judge_own_command
from talaria.core.tool_origin import comes_from_tool, mark_children
from talaria.settings.environment import process_environment

_PR_SET_DUMPABLE = 4


def refusal(words: Sequence[str]) -> str:
    """Return why a command line must not run here; empty where it may."""
    judged = judge_own_command(words)
    if judged is OwnCommand.READS:
        return ""
    environment = process_environment()
    if not comes_from_tool(environment):
        return ""
    if judged is OwnCommand.REFUSED:
        shown = " ".join(("talaria", *(word for word in words if not word.startswith("-"))))[:60]
        return (
            f"`{shown}` changes what the agent may do, so it can't be run from within one of its conversations. "
            "Run it in a terminal of your own."
        )
    overriding = next((name for name in environment if name.startswith("TALARIA__") and is_policy_variable(name)), "")
    if overriding and _is_policy_section(overriding):
        return f"{overriding} can't be set from within a conversation of the agent. Use a terminal of your own."
    return ""


def prepare(words: Sequence[str]) -> None:
    """Mark what this process will start, and keep other processes of the same account out of its memory."""
    if judge_own_command(words) is OwnCommand.ACTS:
        mark_children()
        _hide_memory()


def _is_policy_section(name: str) -> bool:
    return name.split("__")[1].lower() in ("approval", "access", "sandbox", "api", "hooks", "people", "mcp", "tools")


def _hide_memory() -> None:
    """Keep keys in memory from debuggers and from ``/proc`` of the same account; Linux only, and root still may."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
