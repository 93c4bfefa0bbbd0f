"""Hearing and speaking over OpenAI's audio routes, which other providers and local servers have as well."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.voice import Recording
from talaria.core.errors import MalformedReply, ProviderUnreachable
from talaria.providers.failures import failure
from talaria.providers.http import Answer, HttpPool
from talaria.providers.timeouts import Timeouts
from talaria.providers.voice.multipart import form

_JSON = "application/json"
_OGG = "audio/ogg"
_LARGEST = 25_000_000  # bytes; a quarter of an hour has about four million


class AudioServer(Struct, frozen=True, kw_only=True):
    """Where the routes are, up to ``/v1``, and with which headers; ``name`` is for what is said about failures."""

    name: str
    base_url: str
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()


class AudioTranscriber:
    """Implements `Transcriber`; the pool belongs to whoever made it."""

    def __init__(self, server: AudioServer, http: HttpPool, model: str, clock: Clock | None = None) -> None:
        self._server = server
        self._http = http
        self._model = model
        self._clock = clock or SystemClock()

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return what is said in a recording."""
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            raise ProviderUnreachable(f"{file.name} cannot be read: {error.strerror}") from error
        sent = form({"model": self._model, "response_format": "json"}, file.name, data, media_type)
        headers = {**self._server.headers, "Content-Type": sent.content_type}
        url = f"{self._server.base_url.rstrip('/')}/audio/transcriptions"
        async with self._http.post(url, sent.body, headers, self._server.timeouts) as answer:
            body = await _body(self._server.name, answer, self._clock)
        try:
            return msgspec.json.decode(body, type=_Heard).text.strip()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedReply(f"{self._server.name} did not answer with a transcript: {error}") from error


class AudioSpeaker:
    """Implements `Speaker` with one voice; the pool belongs to whoever made it."""

    def __init__(self, server: AudioServer, http: HttpPool, model: str, voice: str, clock: Clock | None = None) -> None:
        self._server = server
        self._http = http
        self._model = model
        self._voice = voice
        self._clock = clock or SystemClock()

    async def speak(self, text: str) -> Recording:
        """Return a recording in which this is said: Opus in Ogg, which chat networks show as a voice note."""
        request = {"model": self._model, "input": text, "voice": self._voice, "response_format": "opus"}
        headers = {**self._server.headers, "Content-Type": _JSON}
        url = f"{self._server.base_url.rstrip('/')}/audio/speech"
        async with self._http.post(url, msgspec.json.encode(request), headers, self._server.timeouts) as answer:
            body = await _body(self._server.name, answer, self._clock)
        return recognised(self._server.name, body)


class _Heard(Struct):
    text: str


def recognised(name: str, body: bytes) -> Recording:
    """Return sound as a recording, or raise `MalformedReply` where it is none."""
    if not body.startswith(b"OggS"):
        raise MalformedReply(f"{name} did not answer with Ogg sound")
    return Recording(body, _OGG)


async def _body(name: str, answer: Answer, clock: Clock) -> bytes:
    body = await answer.body(_LARGEST)
    if answer.status != 200:
        raise failure(name, answer.status, body, answer.headers, clock.now())
    return body
