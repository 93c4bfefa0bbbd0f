"""Images over OpenAI's routes for generation and edits, which many servers have."""

import base64
import binascii

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.media import MadeImage, SourceImage
from talaria.core.errors import MalformedReply
from talaria.core.messages import image_type
from talaria.http_client.bodies import FormFile, encode_form
from talaria.http_client.client import HttpPool
from talaria.providers.base.errors import failure
from talaria.providers.voice import AudioServer

_LARGEST = 60_000_000  # bytes of an answer, with the image as base64 text
_JSON = "application/json"


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
            reply = await answer.body(_LARGEST)
            if answer.status != 200:
                raise failure(self._server.name, answer.status, reply, answer.headers, self._clock.now())
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
            content = await found.body(_LARGEST)
            if found.status != 200:
                raise MalformedReply(f"the image of {self._server.name} can't be fetched (HTTP {found.status})")
        return content
