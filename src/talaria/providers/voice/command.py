"""Speech by commands on this machine."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from talaria.contracts.voice import Recording
from talaria.core.errors import MalformedReply, ProviderUnreachable
from talaria.providers.voice.audio import recognised

_PLACE = "{file}"
_LONGEST = 1_000_000


class CommandTranscriber:
    """A `Transcriber` by a shell command, which gets a file as ``{file}`` and prints the text."""

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return the output of the command."""
        printed = await _run(self._command, file, self._environment)
        return printed.decode(errors="replace").strip()


class CommandSpeaker:
    """A `Speaker` by a shell command, which reads text and writes ``{file}``, as Opus in Ogg."""

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment

    async def speak(self, text: str) -> Recording:
        """Return the file written by the command."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "speech.ogg"
            await _run(self._command, file, self._environment, text)
            try:
                data = await asyncio.to_thread(file.read_bytes)
            except OSError as error:
                raise MalformedReply(f"the command didn't write a file: {error.strerror}") from error
        return recognised("the command", data)


async def _run(command: str, file: Path, environment: Mapping[str, str], words: str = "") -> bytes:
    """Return the output of a command, or raise its error text; cancelling ends its children too."""
    line = command.replace(_PLACE, '"$1"') if _PLACE in command else f'{command} "$1"'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        line,
        "sh",
        str(file),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, complaint = await process.communicate(words.encode())
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        said = complaint[-300:].decode(errors="replace").strip()
        raise ProviderUnreachable(f"the command ended with exit code {process.returncode}: {said}")
    return printed[:_LONGEST]
