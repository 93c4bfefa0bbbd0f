"""Commands on networks whose clients keep the slash for themselves: people type ``!name``."""

import re
from collections.abc import Collection

_COMMAND = re.compile(r"!(\w[\w-]*)(.*)", re.DOTALL)


def read_command(text: str, commands: Collection[str]) -> str:
    """Return a text with ``/name`` for ``!name`` at its start, if that is a command."""
    typed = _COMMAND.fullmatch(text)
    return f"/{typed[1]}{typed[2]}" if typed and typed[1] in commands else text
