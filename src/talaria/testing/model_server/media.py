"""The audio and image routes of the scripted model server."""

import asyncio
import base64
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from aiohttp import BodyPartReader, web

from talaria.testing.model_server.exchange import Fail
from talaria.testing.model_server.wire import bearer_key, error_object

OGG = b"OggS\x00\x02" + bytes(20) + b"\x01\x13OpusHead" + bytes(60)
_FORMATS = {"mp3", "opus", "aac", "flac", "wav", "pcm"}
_LONGEST_INPUT = 4096
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
_SOURCES = {"image", "image[]"}


@dataclass(frozen=True, slots=True)
class ReceivedRecording:
    """A received recording."""

    model: str
    name: str
    media_type: str
    data: bytes


class SpeechRequest(msgspec.Struct, frozen=True):
    """A text to speak."""

    model: str
    input: str
    voice: str
    response_format: str = "mp3"


class AudioEndpoints:
    """Returns ``transcript`` for every recording, and ``speech`` for every text.

    Each call fails with the next of ``faults``, if there is one. While ``open`` is not set, calls wait.
    """

    def __init__(self, keys: Collection[str] | None) -> None:
        self.transcript = "Hello, this is me."
        self.speech = OGG
        self.heard: list[ReceivedRecording] = []
        self.spoken: list[SpeechRequest] = []
        self.faults: deque[Fail] = deque()
        self.open = asyncio.Event()
        self.open.set()
        self._keys = keys

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Serve both routes."""
        router.add_post("/v1/audio/transcriptions", self._transcribe)
        router.add_post("/v1/audio/speech", self._speak)

    async def _transcribe(self, request: web.Request) -> web.Response:
        if not request.content_type.startswith("multipart/form-data"):
            return refuse(Fail(400, message="A form was expected."))
        fields: dict[str, str] = {}
        file: ReceivedRecording | None = None
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                return refuse(Fail(400, message="Forms within forms are not understood."))
            if part.name == "file":
                file = ReceivedRecording(
                    "", part.filename or "", part.headers.get("Content-Type", ""), await part.read()
                )
            else:
                fields[part.name or ""] = await part.text()
        if file is None or not file.name or not file.data or "model" not in fields:
            return refuse(Fail(400, message="Both a model and a file with a name are needed."))
        self.heard.append(ReceivedRecording(fields["model"], file.name, file.media_type, file.data))
        refusal = await self._find_refusal(request)
        return refusal or web.json_response({"text": self.transcript})

    async def _speak(self, request: web.Request) -> web.Response:
        try:
            speech_request = msgspec.json.decode(await request.read(), type=SpeechRequest)
        except msgspec.MsgspecError as error:
            return refuse(Fail(400, message=str(error)))
        if not 0 < len(speech_request.input) <= _LONGEST_INPUT or speech_request.response_format not in _FORMATS:
            return refuse(Fail(400, message="The input is too long, or the format unknown."))
        self.spoken.append(speech_request)
        refusal = await self._find_refusal(request)
        return refusal or web.Response(body=self.speech, content_type=f"audio/{speech_request.response_format}")

    async def _find_refusal(self, request: web.Request) -> web.Response | None:
        await self.open.wait()
        if self._keys is not None and bearer_key(request.headers) not in self._keys:
            return refuse(Fail(401))
        return refuse(self.faults.popleft()) if self.faults else None


def refuse(fail: Fail) -> web.Response:
    """Return an error in OpenAI's format."""
    return web.json_response({"error": error_object(fail)}, status=fail.status)


@dataclass(frozen=True, slots=True)
class ReceivedImageRequest:
    """A received request; ``sources`` are field, file name, media type and content of each image to edit."""

    model: str
    prompt: str
    size: str = ""
    sources: tuple[tuple[str, str, str, bytes], ...] = ()


class _Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    prompt: str
    n: int = 1
    size: str = ""


class ImageEndpoints:
    """Returns ``image`` for every request, as base64 text, or as a URL if ``as_url``.

    Each call fails with the next of ``faults``, if there is one. While ``open`` is not set, calls wait. Unknown
    parameters are refused, as OpenAI does.
    """

    def __init__(self, keys: Collection[str] | None) -> None:
        self.image = PNG
        self.as_url = False
        self.requests: list[ReceivedImageRequest] = []
        self.faults: deque[Fail] = deque()
        self.open = asyncio.Event()
        self.open.set()
        self._keys = keys

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Serve both routes, and the image by its URL."""
        router.add_post("/v1/images/generations", self._generate)
        router.add_post("/v1/images/edits", self._edit)
        router.add_get("/images/1.png", self._show)

    async def _generate(self, request: web.Request) -> web.Response:
        try:
            options = msgspec.json.decode(await request.read(), type=_Generation)
        except msgspec.MsgspecError as error:
            return refuse(Fail(400, message=str(error)))
        if options.n != 1 or not options.prompt:
            return refuse(Fail(400, message="One image and a prompt are expected."))
        return await self._answer(request, ReceivedImageRequest(options.model, options.prompt, options.size))

    async def _edit(self, request: web.Request) -> web.Response:
        if not request.content_type.startswith("multipart/form-data"):
            return refuse(Fail(400, message="A form was expected."))
        fields: dict[str, str] = {}
        sources: list[tuple[str, str, str, bytes]] = []
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            if part.name in _SOURCES:
                kind = part.headers.get("Content-Type", "")
                sources.append((part.name, part.filename or "", kind, bytes(await part.read())))
            else:
                fields[part.name or ""] = await part.text()
        if not sources or not {"model", "prompt"} <= set(fields) <= {"model", "prompt", "n", "size"}:
            return refuse(Fail(400, message="A model, a prompt and an image are needed."))
        size = fields.get("size", "")
        return await self._answer(
            request, ReceivedImageRequest(fields["model"], fields["prompt"], size, tuple(sources))
        )

    async def _answer(self, request: web.Request, received: ReceivedImageRequest) -> web.Response:
        self.requests.append(received)
        await self.open.wait()
        if self._keys is not None and bearer_key(request.headers) not in self._keys:
            return refuse(Fail(401))
        if self.faults:
            return refuse(self.faults.popleft())
        if self.as_url:
            found = {"url": f"http://{request.host}/images/1.png"}
        else:
            found = {"b64_json": base64.b64encode(self.image).decode()}
        return web.json_response({"created": 1, "data": [found]})

    async def _show(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            return web.Response(status=400, text="The key belongs to the API only.")
        return web.Response(body=self.image, content_type="image/png")
