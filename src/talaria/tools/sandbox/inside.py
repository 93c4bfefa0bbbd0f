"""Shell scripts that run inside of sandboxes: limits, working folder, and the end of everything a command started."""

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.contracts.sandbox import SandboxPolicy, SandboxPrograms

_RUNS_LATER = (".git/hooks", ".git/config", ".talaria", "AGENTS.md", "CLAUDE.md")
# Where the proxy to allowed hosts is reached inside: a folder with its socket and bridge, and a port.
PROXY_FOLDER = "/tmp/.talaria-proxy"  # noqa: S108 (inside of the sandbox, whose /tmp is private)
PROXY_PORT = 3128
PROXY_ENVIRONMENT = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"),
    f"http://127.0.0.1:{PROXY_PORT}",
)
# The shell wrapper of the terminal leaves out variables with this prefix.
_MARK = "__talaria_call"
_LIST = f'list() {{ grep -lsF "{_MARK}=$1" /proc/[0-9]*/environ; }}'
_SIGNAL = 'signal() { for f in $(list "$2"); do p=${f#/proc/}; kill -"$1" "${p%/environ}"; done 2>/dev/null; }'
# A process may have started another one between the list and the signal.
_FINISH = 'finish() { i=0; while [ -n "$(list "$1")" ] && [ $i -lt 50 ]; do signal KILL "$1"; i=$((i + 1)); done; }'
# Everything that the command started has its mark in the environment, even in a session of its own. This shell hasn't.
_RUN = f"""{_LIST}; {_SIGNAL}; {_FINISH}
cd -- "$1" 2>/dev/null || {{ echo "The folder $1 doesn't exist there." >&2; exit 125; }}
mark=$2; shift 2
{_MARK}=$mark "$@"
code=$?
finish "$mark"
exit $code"""
_END = f"""{_LIST}; {_SIGNAL}; {_FINISH}
signal TERM "$1"; n=0
while [ -n "$(list "$1")" ] && [ $n -lt 20 ]; do sleep 0.1; n=$((n + 1)); done
finish "$1"; sleep 0.1; finish "$1"; [ -z "$(list "$1")" ]"""  # a process that is being replaced has no environment
_PROBE = """printf '%s\\0' "$(pwd)" "$(command -v bash)" "$(command -v python3)"; env -0"""

_READ_ONLY = "Read-only file system"
_FORBIDDEN = re.compile(
    r"Permission denied|Operation not permitted|no new privileges|\bE(?:ROFS|ACCES|PERM)\b|Docker daemon|to bus:"
)
_OFFLINE = re.compile(r"resol(?:ve|ution)|(?i:network is )unreachable|Connection refused|\bE(?:AI_AGAIN|NETUNREACH)\b")


class Inside(Struct, frozen=True):
    """Contents of a sandbox with its own programs: home folder, shell, Python, and initial variables."""

    home: str
    programs: SandboxPrograms
    environment: Mapping[str, str]
    has_python: bool = True

    def choose_variables(self, environment: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to pass: exports of earlier commands and the session context, none of this machine's."""
        return {name: value for name, value in environment.items() if host.get(name) != value}

    def exports(
        self, before: Mapping[str, str], after: Mapping[str, str], host: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the environment of the workspace after a command: this machine's with the exports made inside."""
        if not after:
            return before
        kept = {name: value for name, value in before.items() if host.get(name) == value or name in after}
        return kept | {name: value for name, value in after.items() if self.environment.get(name) != value}


def build_probe_argv() -> list[str]:
    """Return the call that reports what is inside, for `read_probe`."""
    return ["sh", "-c", _PROBE]


def read_probe(output: bytes) -> Inside | None:
    """Return what is inside; ``None`` if the output isn't that of the probe."""
    parts = [os.fsdecode(part) for part in output.split(b"\0")]
    if len(parts) < 3:
        return None
    # A login shell may print something first.
    home, bash, python = parts[0].rpartition("\n")[2], parts[1], parts[2]
    shell = ("bash", "--noprofile", "--norc") if bash else ("sh",)
    pairs = (part.partition("=") for part in parts[3:] if "=" in part)
    variables = {name: value for name, _, value in pairs}
    return Inside(home, SandboxPrograms(shell, (python or "python3",)), variables, bool(python))


def build_run_argv(argv: Sequence[str], folder: str, policy: SandboxPolicy, mark: str) -> list[str]:
    """Return the call inside that runs ``argv`` in ``folder`` and then ends whatever it left running."""
    return [*build_limit_argv(policy), "sh", "-c", _RUN, "sh", folder, mark, *argv]


def build_end_argv(mark: str) -> list[str]:
    """Return the call inside that ends everything with this mark, and kills what remains after two seconds."""
    return ["sh", "-c", _END, "sh", mark]


def make_mark() -> str:
    """Return a mark for the processes of one call."""
    return secrets.token_hex(16)


def build_limit_argv(policy: SandboxPolicy) -> list[str]:
    """Return the start of a call whose processes are limited as the policy says; empty without limits."""
    limits = [
        *((f"ulimit -d {policy.memory_mb * 1024}",) if policy.memory_mb else ()),
        *((f"ulimit -u {policy.processes}",) if policy.processes else ()),
        *((f"ulimit -t {policy.cpu_seconds}",) if policy.cpu_seconds else ()),
    ]
    return ["sh", "-c", " && ".join([*limits, 'exec "$@"']), "sh"] if limits else []


def list_delayed_effects(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield files in writable folders that run or give instructions outside of the sandbox."""
    for folder in folders:
        yield from (folder / name for name in _RUNS_LATER)


def leave_out_proxy(before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment after a command without the address of the proxy, which it has only inside."""
    kept = {name: value for name, value in after.items() if PROXY_ENVIRONMENT.get(name) != value}
    return {**{name: before[name] for name in PROXY_ENVIRONMENT if name in before}, **kept}


def describe_network(policy: SandboxPolicy) -> str:
    """Return the part of a description about the network."""
    if policy.network:
        return ""
    if policy.hosts:
        return f", and can reach only {', '.join(policy.hosts)} over HTTP (sandbox.allowed_hosts)"
    return ", without network access (sandbox.network)"


def has_hit_limit(policy: SandboxPolicy, output: str, code: int | None) -> bool:
    """Return whether a program seems to have hit a limit of its sandbox, judging by its output and exit code."""
    offline = not policy.network and _OFFLINE.search(output)
    return _READ_ONLY in output or (code != 0 and bool(_FORBIDDEN.search(output) or offline))
