"""The image routes of the scripted model server: generation and edits."""

import asyncio
import base64
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from aiohttp import BodyPartReader, web

from talaria.testing.model_server.audio import refuse
from talaria.testing.model_server.faults import Fail
from talaria.testing.model_server.wire import bearer_key

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
_SOURCES = {"image", "image[]"}


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
            asked = msgspec.json.decode(await request.read(), type=_Generation)
        except msgspec.MsgspecError as error:
            return refuse(Fail(400, message=str(error)))
        if asked.n != 1 or not asked.prompt:
            return refuse(Fail(400, message="One image and a prompt are expected."))
        return await self._answer(request, ReceivedImageRequest(asked.model, asked.prompt, asked.size))

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
