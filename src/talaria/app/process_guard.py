"""Guard of every Talaria process: tools cannot change the policy, other processes cannot read its memory."""

import ctypes
import sys
from collections.abc import Sequence

from talaria.core.own_commands import OwnCommand, comes_from_tool, is_policy_variable, judge_own_command, mark_children
from talaria.settings.environment import process_environment

_PR_SET_DUMPABLE = 4


def find_refusal(arguments: Sequence[str]) -> str:
    """Return why this command line must not run here, or an empty string if it may."""
    verdict = judge_own_command(arguments)
    if verdict is OwnCommand.READS:
        return ""
    environment = process_environment()
    if not comes_from_tool(environment):
        return ""
    if verdict is OwnCommand.REFUSED:
        command_line = " ".join(("talaria", *(word for word in arguments if not word.startswith("-"))))[:60]
        return (
            f"`{command_line}` changes what the agent may do, so it can't be run from inside one of its "
            "conversations. Run it in your own terminal."
        )
    overriding = next((name for name in environment if name.startswith("TALARIA__") and is_policy_variable(name)), "")
    if overriding and _is_policy_section(overriding):
        return f"{overriding} can't be set from inside a conversation of the agent. Use your own terminal."
    return ""


def protect_process(arguments: Sequence[str]) -> None:
    """Mark the children of a process that runs the agent, and hide its memory from the same account."""
    if judge_own_command(arguments) is OwnCommand.ACTS:
        mark_children()
        _hide_memory()


def _is_policy_section(name: str) -> bool:
    policy = ("approval", "access", "sandbox", "api", "hooks", "people", "mcp", "surfaces", "tools")
    return name.split("__")[1].lower() in policy


def _hide_memory() -> None:
    """Hide keys in memory from debuggers and ``/proc`` of the same account; Linux only, root can still read."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
