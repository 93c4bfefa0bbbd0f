"""Talaria commands that an agent's tool starts: how they are detected, and which of them change the policy."""

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

_GLOBAL_WITH_VALUE = ("-p", "--profile", "--color")
_READS: dict[str, tuple[str, ...]] = {
    "sessions": ("list", "show", "search", "export"),
    "config": ("path", "show", "get", "check"),
    "profile": ("list", "show", "path"),
    "gateway": ("status", "logs", "slack-manifest"),
    "cron": ("list", "show", "history"),
    "pairing": ("list", "people"),
    "api-keys": ("list",),
    "web": ("browsers",),
    "approvals": ("list", "export"),
    "checkpoints": ("list", "diff"),
    "auth": ("status",),
    "trust": ("list",),
    "channels": ("list",),
    "webhook": ("list", "test"),
    "hooks": ("list",),
    "skills": ("list", "show", "search", "audit"),
    "ps": ("log",),
    "mcp": ("list",),
}
_READS_WITHOUT_ACTION = frozenset(
    {"sessions", "ps", "tools", "skills", "model", "models", "trace", "doctor", "completion", "help", "auth", "mcp"}
)
_REFUSED = frozenset(
    {
        "setup",
        "login",
        "logout",
        "mcp",
        "restore",
        "hooks",
        "config",
        "profile",
        "pairing",
        "api-keys",
        "approvals",
        "checkpoints",
        "tools",
        "skills",
        "trust",
        "uninstall",
        "update",
        "web",
    }
)
_REFUSED_ACTIONS = {"gateway": ("stop", "restart", "install", "uninstall")}
_WRITING_OPTIONS = frozenset({"--fix", "--with-secrets"})
_VARIABLE = "TALARIA_SESSION_ID"
# "talaria" as a number, 32 petabytes: the limit has no effect, and nothing else sets it. Only root can raise it again.
_MARK = int.from_bytes(b"talaria", "big")
_MAX_ANCESTORS = 64


class OwnCommand(Enum):
    """The class of a talaria command line run by a tool."""

    READS = "reads"
    ACTS = "acts"
    REFUSED = "refused"


def judge_own_command(arguments: Sequence[str]) -> OwnCommand:
    """Classify the arguments after ``talaria``; commands not known to only read count as acting."""
    rest = _drop_global_options(arguments)
    rest = rest[: rest.index("--")] if "--" in rest else rest  # what follows are no options of ours
    if not rest or {"-h", "--help"} & set(rest) or rest[0] in ("-V", "--version"):
        return OwnCommand.READS if rest or {"-h", "--help", "-V", "--version"} & set(arguments) else OwnCommand.ACTS
    name = rest[0]
    action = next((word for word in rest[1:] if not word.startswith("-")), "")
    if "--with-secrets" in rest or action in _REFUSED_ACTIONS.get(name, ()):
        return OwnCommand.REFUSED
    if action in _READS.get(name, ()) or (not action and name in _READS_WITHOUT_ACTION):
        return OwnCommand.ACTS if _WRITING_OPTIONS & set(rest) else OwnCommand.READS
    if name in ("trace", "completion", "help", "models"):
        return OwnCommand.READS
    return OwnCommand.REFUSED if name in _REFUSED else OwnCommand.ACTS


def is_policy_variable(name: str) -> bool:
    """Return whether an environment variable overrides a setting or chooses the settings file."""
    return name.startswith("TALARIA__") or name in ("TALARIA_HOME", "TALARIA_PROFILE", "TALARIA_API_KEY")


def _drop_global_options(arguments: Sequence[str]) -> list[str]:
    at = 0
    while (
        at < len(arguments)
        and arguments[at].startswith("-")
        and arguments[at] not in ("-h", "--help", "-V", "--version")
    ):
        at += 2 if arguments[at] in _GLOBAL_WITH_VALUE else 1
    return list(arguments[at:])


def mark_children() -> None:
    """Mark this process and all its descendants, whatever they do with their environment or their parents.

    If the system refuses, the other two signs remain.
    """
    try:
        resource.setrlimit(resource.RLIMIT_RSS, (_MARK, _MARK))
    except (ValueError, OSError):
        return


def comes_from_tool(environment: Mapping[str, str]) -> bool:
    """Return whether this process descends from an agent's session.

    Three signs, each sufficient: its own environment, the inherited mark, and the environment with which one of its
    ancestors was started.
    """
    if environment.get(_VARIABLE):
        return True
    if resource.getrlimit(resource.RLIMIT_RSS)[1] == _MARK:
        return True
    prefix = f"{_VARIABLE}=".encode()
    return any(_starts_with(process, prefix) for process in _iterate_ancestors())


def _iterate_ancestors() -> Iterator[int]:
    process = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        if process <= 1:
            return
        yield process
        try:
            status = Path(f"/proc/{process}/stat").read_bytes()
        except OSError:
            return
        process = int(status.rpartition(b")")[2].split()[1])


def _starts_with(process: int, prefix: bytes) -> bool:
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(one.startswith(prefix) and one != prefix for one in variables)
