"""Speech to text and text to speech: over OpenAI's audio routes, which many servers have, or by local commands."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.media import Recording
from talaria.core.aio import shield_until_done
from talaria.core.errors import MalformedReply, ProviderError, ProviderUnreachable
from talaria.http_client.bodies import FormFile, encode_form
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.timeouts import Timeouts
from talaria.providers.base.errors import failure

_JSON = "application/json"
_OGG = "audio/ogg"
_LARGEST = 25_000_000  # bytes; a quarter of an hour has about four million
_PLACE = "{file}"
_LONGEST = 1_000_000  # bytes of the output of a command


class AudioServer(Struct, frozen=True, kw_only=True):
    """The base URL up to ``/v1``, and headers; ``name`` is for error messages."""

    name: str
    base_url: str
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()


class AudioTranscriber:
    """A `Transcriber` over HTTP; its creator owns the pool."""

    def __init__(self, server: AudioServer, http: HttpPool, model: str, clock: Clock | None = None) -> None:
        self._server = server
        self._http = http
        self._model = model
        self._clock = clock or SystemClock()

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return the text of a recording."""
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            raise ProviderUnreachable(f"can't read {file.name}: {error.strerror}") from error
        sound = FormFile("file", file.name, data, media_type)
        sent = encode_form({"model": self._model, "response_format": "json"}, sound)
        headers = {**self._server.headers, "Content-Type": sent.content_type}
        url = f"{self._server.base_url.rstrip('/')}/audio/transcriptions"
        async with self._http.post(url, sent.body, headers, self._server.timeouts) as answer:
            body = await _body(self._server.name, answer, self._clock)
        try:
            return msgspec.json.decode(body, type=_Heard).text.strip()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedReply(f"{self._server.name} didn't return a transcript: {error}") from error


class AudioSpeaker:
    """A `Speaker` with one voice over HTTP; its creator owns the pool."""

    def __init__(self, server: AudioServer, http: HttpPool, model: str, voice: str, clock: Clock | None = None) -> None:
        self._server = server
        self._http = http
        self._model = model
        self._voice = voice
        self._clock = clock or SystemClock()

    async def speak(self, text: str) -> Recording:
        """Return a recording of this text: Opus in Ogg, which chat networks show as a voice note."""
        request = {"model": self._model, "input": text, "voice": self._voice, "response_format": "opus"}
        headers = {**self._server.headers, "Content-Type": _JSON}
        url = f"{self._server.base_url.rstrip('/')}/audio/speech"
        async with self._http.post(url, msgspec.json.encode(request), headers, self._server.timeouts) as answer:
            body = await _body(self._server.name, answer, self._clock)
        return recognised(self._server.name, body)


class VoiceCommandFailed(ProviderError):
    """A command of the settings that speaks or transcribes has failed; the message has its error text."""

    public = "The owner's program for speech failed. The log says why."


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
    """A `Speaker` by a shell command, which reads text and writes ``{file}``: Ogg, WAV or MP3."""

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


class _Heard(Struct):
    text: str


def recognised(name: str, body: bytes) -> Recording:
    """Return audio as a recording of its type, or raise `MalformedReply` for other data."""
    if body.startswith(b"OggS"):
        return Recording(body, _OGG)
    if body.startswith(b"RIFF") and body[8:12] == b"WAVE":
        return Recording(body, "audio/wav")
    if body.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")):
        return Recording(body, "audio/mpeg")
    raise MalformedReply(f"{name} didn't return Ogg, WAV or MP3 audio")


async def _body(name: str, answer: Answer, clock: Clock) -> bytes:
    body = await answer.body(_LARGEST)
    if answer.status != 200:
        raise failure(name, answer.status, body, answer.headers, clock.now())
    return body


async def _run(command: str, file: Path, environment: Mapping[str, str], words: str = "") -> bytes:
    """Return the output of a command, or raise its error text; cancelling ends its children too."""
    line = command.replace(_PLACE, '"$1"') if _PLACE in command else f'{command} "$1"'
    starting = asyncio.create_subprocess_exec(
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
    process = await shield_until_done(starting, undo=_kill)  # a cancelled start would leave its children running
    try:
        printed, complaint = await process.communicate(words.encode())
    finally:
        await _kill(process)
    if process.returncode:
        said = complaint[-300:].decode(errors="replace").strip()
        raise VoiceCommandFailed(f"the command ended with exit code {process.returncode}: {said}")
    return printed[:_LONGEST]


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command that is running, with its children."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
