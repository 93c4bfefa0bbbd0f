"""The person's own editor for a long message."""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from talaria.core.errors import Refused

_USUAL = "vi"


def editor_of(environment: Mapping[str, str]) -> str:
    """Return the command that starts the editor."""
    return environment.get("VISUAL") or environment.get("EDITOR") or _USUAL


async def edit_text(text: str, environment: Mapping[str, str]) -> str:
    """Return the text as the person leaves it in their editor, which has the terminal meanwhile.

    Raises `Refused` where the editor cannot be run or fails.
    """
    editor = editor_of(environment)
    with TemporaryDirectory(prefix="talaria-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text)
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file), env=environment)
        except (OSError, ValueError) as error:
            raise Refused(f"The editor `{editor}` cannot be run: {error}. Set VISUAL or EDITOR.") from error
        if await process.wait():
            raise Refused(f"The editor `{editor}` ended with exit code {process.returncode}; nothing was changed.")
        return file.read_text().rstrip("\n")
