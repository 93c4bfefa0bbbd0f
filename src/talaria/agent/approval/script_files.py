"""Shell scripts in files: existing ones, and those written by the examined code itself."""

import re
from pathlib import Path

from talaria.agent.approval.printed_output import predict_output
from talaria.agent.approval.shell_state import UNKNOWN, ShellState, ShellWord, SimpleCommand

_MAX_BYTES = 64_000
_SHEBANG = re.compile(rb"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?\S*?\b(?:ba|z|da|k|mk|a|fi|c|tc|ya)?sh\b")


class ScriptFiles:
    """Reads scripts, each once; content written earlier by the examined code takes precedence over the file."""

    def __init__(self) -> None:
        self._written: dict[Path, str] = {}
        self._read: set[Path] = set()

    def record_write(self, paths: tuple[Path, ...] | None, command: SimpleCommand | None) -> None:
        """Record that a file is written, by the output of ``command`` if there is one."""
        for path in paths or ():
            text = UNKNOWN if command is None else predict_output(command, ShellState({}, path.parent))
            is_more = command is not None and any(">>" in one.operator for one in command.redirects)
            self._written[path] = f"{self._written.get(path, UNKNOWN)}\n{text}" if is_more else text

    def is_new(self, paths: tuple[Path, ...] | None) -> bool:
        """Return whether the examined code has written a file."""
        return any(path in self._written for path in paths or ())

    def read(self, paths: tuple[Path, ...] | None) -> str | None:
        """Return the code of a script, empty if it was read before, ``None`` if it is unknown."""
        if not paths:
            return None
        path = paths[0]
        if path in self._written:
            text = self._written[path]
            return None if UNKNOWN in text else text
        if path in self._read:
            return ""
        self._read.add(path)
        try:
            with path.open("rb") as file:
                source = file.read(_MAX_BYTES + 1) if path.is_file() else b"\0"
        except OSError:
            return None
        return None if len(source) > _MAX_BYTES or b"\0" in source else source.decode("utf-8", "replace")


def is_script(paths: tuple[Path, ...] | None) -> bool:
    """Return whether a file starts like a shell script."""
    try:
        with (paths or ())[0].open("rb") as file:
            return bool(_SHEBANG.match(file.read(80)))
    except (OSError, IndexError):
        return False


def script_of(command: SimpleCommand, with_value: str) -> tuple[ShellWord, ...]:
    """Return the first argument of a command that is not an option, and all after it."""
    skip = False
    for index, word in enumerate(command.words[1:], 1):
        if skip:
            skip = False
        elif word.text.startswith(("-", "+")) and word.text != "-":
            skip = len(word.text) == 2 and word.text[1] in with_value
        elif word.text != "-":
            return command.words[index:]
    return ()
