"""Speech to text and text to speech: over OpenAI's audio routes, which many servers have, or by local commands."""

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.voice import Recording
from talaria.core.aio import shield_until_done
from talaria.core.errors import MalformedReply, ProviderUnreachable
from talaria.core.ids import new_id
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.timeouts import Timeouts
from talaria.providers.base.errors import failure

_JSON = "application/json"
_OGG = "audio/ogg"
_LARGEST = 25_000_000  # bytes; a quarter of an hour has about four million
_PLACE = "{file}"
_LONGEST = 1_000_000  # bytes of the output of a command
_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')


class Form(Struct, frozen=True):
    """The body of a request, and its content type."""

    content_type: str
    body: bytes


def form(fields: Mapping[str, str], name: str, file: bytes, media_type: str) -> Form:
    """Return a form with these fields, and a file as its field ``file``."""
    border = f"talaria-{new_id()}-{new_id()}"
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}' for key, value in fields.items()
    ]
    head = (
        f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="{_UNSAFE.sub("_", name)}"\r\n'
        f"Content-Type: {_UNSAFE.sub('_', media_type)}\r\n\r\n"
    )
    body = "\r\n".join([*parts, head]).encode() + file + f"\r\n--{border}--\r\n".encode()
    return Form(f"multipart/form-data; boundary={border}", body)


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
        sent = form({"model": self._model, "response_format": "json"}, file.name, data, media_type)
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


class _Heard(Struct):
    text: str


def recognised(name: str, body: bytes) -> Recording:
    """Return audio as a recording, or raise `MalformedReply` for other data."""
    if not body.startswith(b"OggS"):
        raise MalformedReply(f"{name} didn't return Ogg audio")
    return Recording(body, _OGG)


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
        raise ProviderUnreachable(f"the command ended with exit code {process.returncode}: {said}")
    return printed[:_LONGEST]


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command that is running, with its children."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
