"""Media models: images and speech over OpenAI's routes, which many servers have, or speech by programs."""

import asyncio
import base64
import binascii
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import MadeImage, Recording, SourceImage
from talaria.core.aio import shield_until_done
from talaria.core.errors import MalformedReply, ProviderError, ProviderUnreachable
from talaria.core.messages import image_type
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.connection import FormFile, Timeouts, encode_form
from talaria.providers.base.errors import make_response_error

_JSON = "application/json"
_OGG = "audio/ogg"
_LARGEST_RECORDING = 25_000_000  # bytes; a quarter of an hour has about four million
_PLACE = "{file}"
_LONGEST = 1_000_000  # bytes of the output of a command
_LARGEST_IMAGE = 60_000_000  # bytes of an answer, with the image as base64 text


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
            body = await _read_recording(self._server.name, answer, self._clock)
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
            body = await _read_recording(self._server.name, answer, self._clock)
        return parse_recording(self._server.name, body)


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
        return parse_recording("the command", data)


class _Heard(Struct):
    text: str


def parse_recording(name: str, body: bytes) -> Recording:
    """Return audio as a recording of its type, or raise `MalformedReply` for other data."""
    if body.startswith(b"OggS"):
        return Recording(body, _OGG)
    if body.startswith(b"RIFF") and body[8:12] == b"WAVE":
        return Recording(body, "audio/wav")
    if body.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")):
        return Recording(body, "audio/mpeg")
    raise MalformedReply(f"{name} didn't return Ogg, WAV or MP3 audio")


async def _read_recording(name: str, answer: Answer, clock: Clock) -> bytes:
    body = await answer.body(_LARGEST_RECORDING)
    if answer.status != 200:
        raise make_response_error(name, answer.status, body, answer.headers, clock.now())
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
        output = complaint[-300:].decode(errors="replace").strip()
        raise VoiceCommandFailed(f"the command ended with exit code {process.returncode}: {output}")
    return printed[:_LONGEST]


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command that is running, with its children."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class _ImageData(Struct):
    b64_json: str | None = None
    url: str | None = None


class _ImagesAnswer(Struct):
    data: list[_ImageData]


class OpenAIImages:
    """An `ImageMaker` over HTTP, without prices; its creator owns the pool."""

    def __init__(self, server: AudioServer, http: HttpPool, model: str, clock: Clock | None = None) -> None:
        self._server = server
        self._http = http
        self._model = model
        self._clock = clock or SystemClock()

    async def make(self, prompt: str, *, size: str = "", sources: tuple[SourceImage, ...] = ()) -> MadeImage:
        """Return a new image, or an edited one if there are sources."""
        fields = {"model": self._model, "prompt": prompt, **({"size": size} if size else {})}
        if sources:
            field = "image" if len(sources) == 1 else "image[]"
            files = [FormFile(field, one.name, one.content, one.media_type) for one in sources]
            form = encode_form({**fields, "n": "1"}, *files)
            answer = await self._post("/images/edits", form.content_type, form.body)
        else:
            answer = await self._post("/images/generations", _JSON, msgspec.json.encode({**fields, "n": 1}))
        content = await self._read_image(answer)
        media_type = image_type(content)
        if not media_type:
            raise MalformedReply(f"{self._server.name} didn't return an image")
        return MadeImage(content, media_type)

    async def _post(self, path: str, content_type: str, body: bytes) -> bytes:
        headers = {**self._server.headers, "Content-Type": content_type}
        url = f"{self._server.base_url.rstrip('/')}{path}"
        async with self._http.post(url, body, headers, self._server.timeouts) as answer:
            reply = await answer.body(_LARGEST_IMAGE)
            if answer.status != 200:
                raise make_response_error(self._server.name, answer.status, reply, answer.headers, self._clock.now())
        return reply

    async def _read_image(self, answer: bytes) -> bytes:
        """Return the image of an answer, which is base64 text or a URL to fetch without the key."""
        try:
            image = msgspec.json.decode(answer, type=_ImagesAnswer).data[0]
            if image.b64_json:
                return base64.b64decode(image.b64_json, validate=True)
        except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, IndexError) as error:
            raise MalformedReply(f"{self._server.name} didn't return an image: {error}") from error
        if not image.url:
            raise MalformedReply(f"{self._server.name} returned neither an image nor its address")
        async with self._http.get(image.url, {}, self._server.timeouts) as found:
            content = await found.body(_LARGEST_IMAGE)
            if found.status != 200:
                raise MalformedReply(f"the image of {self._server.name} can't be fetched (HTTP {found.status})")
        return content
