"""Run a command in a shell that restores and reports its folder and exported variables."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from talaria.contracts.sandbox import SandboxPrograms

_MARK = "__talaria_"

# One line, so that line numbers in the shell's messages are those of the command. Descriptor 8 is the lifeline: a
# watcher waits for its end and then kills the whole group, itself included. Descriptor 9 is for us alone: first the
# watcher's id, at the end the folder and the environment.
_FAREWELL = "; ".join(
    (
        f"{{ {_MARK}code=$?; set +exu; }} 2>/dev/null",
        f'{{ pwd; printf "\\0"; "${_MARK}env" -0; }} >&9 2>/dev/null',
        f"exit ${_MARK}code",
    )
)
_WRAPPER = "; ".join(
    (
        "exec 8<&0 9>&2 2>&1 </dev/null",
        f"{_MARK}env=$1 {_MARK}command=$2",
        "printf '%s\\0' \"$( (read -r _ <&8; kill -9 0) >/dev/null 2>&1 9>&- & echo $!)\" >&9",
        "exec 8<&-",
        "shift 2",
        f"trap '{_FAREWELL}' EXIT",
        f'eval "${_MARK}command"',
    )
)
_OF_THE_SHELL = ("_", "SHLVL")


class Ending(Struct, frozen=True):
    """The final state of a shell: its folder and exports, if it lived to report them."""

    watcher: int | None = None
    folder: Path | None = None
    environment: Mapping[str, str] | None = None


def shell_argv(command: str, programs: SandboxPrograms | None = None) -> list[str]:
    """Return the call of a shell that runs ``command`` and writes its `Ending` to the notes of its `Child`."""
    own = programs or _programs()
    name = "bash" if len(own.shell) > 1 else "sh"
    return [*own.shell, "-c", _WRAPPER, name, own.env, command]


def plain_argv(command: str, programs: SandboxPrograms | None = None) -> list[str]:
    """Return the call of a shell that runs ``command`` and reports nothing."""
    return [*(programs or _programs()).shell, "-c", command]


def _programs() -> SandboxPrograms:
    """Return the programs of this machine."""
    from shutil import which  # noqa: PLC0415 (loaded with the first command)

    bash = which("bash")
    shell = (bash, "--noprofile", "--norc") if bash else (which("sh") or "/bin/sh",)
    return SandboxPrograms(shell, (), which("env") or "/usr/bin/env")


def read_ending(notes: bytes) -> Ending:
    """Return the shell's report; for a shell that was killed or replaced by ``exec``, only the watcher.

    A start-up file on another host may have printed something before it.
    """
    first, found, rest = notes.partition(b"\0")
    watcher = first[len(first.rstrip(b"0123456789")) :]
    if not watcher or not found:
        return Ending()
    folder, found, variables = rest.partition(b"\n\0")
    if not found:
        return Ending(int(watcher))
    return Ending(int(watcher), Path(os.fsdecode(folder)), _environment(variables))


def changed_environment(
    current: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Return ``current`` with the changes of a command: parallel commands keep each other's exports."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    removed = before.keys() - after.keys()
    return {name: value for name, value in {**current, **changed}.items() if name not in removed}


def _environment(raw: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {
        name: value for name, _, value in pairs if name and name not in _OF_THE_SHELL and not name.startswith(_MARK)
    }
