"""The vision tool: view an image through a model that can see."""

import asyncio
import base64
import binascii
from contextlib import aclosing
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote_to_bytes

from msgspec import Meta, Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ModelReply, ModelRequest, Provider
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ProviderError, ToolFailed
from talaria.core.messages import Image, Message, Text, image_type
from talaria.tools.web.client import WebClient

SIZE_LIMIT = 5_000_000  # bytes; the limit of most providers
_OUTPUT_TOKENS = 1_500
_WEB = ("http://", "https://")
_PDF = b"%PDF-"
_PDF_LIMIT = 50_000_000  # bytes


class VisionArguments(Struct, frozen=True):
    """An image or a page of a PDF, and a question about it."""

    image: Annotated[str, Meta(min_length=1, description="Path or URL of an image or PDF")]
    question: str = "Describe this image, and transcribe all text in it."
    page: Annotated[int, Meta(ge=1)] = 1


class Vision:
    """Asks another model about an image."""

    name = "vision"
    description = "View an image, screenshot or PDF page and answer a question about it."
    effect = Effect.READS
    arguments: type[Struct] = VisionArguments

    def __init__(self, provider: Provider, model: str, client: WebClient, clock: Clock | None = None) -> None:
        self._provider = provider
        self._model = model
        self._client = client
        self._clock = clock or SystemClock()

    def proposed_action(self, arguments: VisionArguments) -> ProposedAction:
        """Describe which image is viewed."""
        if arguments.image.startswith("data:"):
            return ProposedAction("other", "an image")
        return ProposedAction(
            "fetch" if arguments.image.startswith(_WEB) else "read", arguments.image.removeprefix("file://")
        )

    async def run(self, arguments: VisionArguments, call: Call) -> ToolOutput:
        """Return the other model's answer."""
        picture = await _draw_pdf(await self._load(arguments.image, call), arguments.page)
        parts = (Text(arguments.question), _image(picture))
        request = ModelRequest(
            model=self._model,
            messages=(Message(role="user", parts=parts, at=self._clock.now()),),
            max_output_tokens=_OUTPUT_TOKENS,
        )
        try:
            return ToolOutput(await self._ask(request))
        except ProviderError as error:
            raise ToolFailed(f"the image couldn't be analysed: {error}") from error

    async def _ask(self, request: ModelRequest) -> str:
        async with aclosing(self._provider.reply(request)) as events:
            async for event in events:
                if isinstance(event, ModelReply) and event.message.text:
                    return event.message.text
        raise ToolFailed("the vision model returned no text")

    async def _load(self, source: str, call: Call) -> bytes:
        if source.startswith("data:"):
            return _from_data_uri(source)
        if source.startswith(_WEB):
            return (await self._client.get(source)).body
        return await asyncio.to_thread(_from_file, call.workspace.resolve(source.removeprefix("file://")))


async def _draw_pdf(content: bytes, page: int) -> bytes:
    """Return an image as it is, and a PDF as an image of one of its pages."""
    if _PDF not in content[:1024]:
        return content
    from tempfile import TemporaryDirectory  # noqa: PLC0415 (loaded with the first PDF)

    from talaria.tools.documents.reader import draw_page  # noqa: PLC0415 (loaded with the first PDF)

    with TemporaryDirectory(prefix="talaria-") as folder:
        file = Path(folder) / "document.pdf"
        await asyncio.to_thread(file.write_bytes, content)
        return await draw_page(file, page)


def _image(picture: bytes) -> Image:
    media_type = image_type(picture)
    if not media_type:
        raise ToolFailed("not an image (PNG, JPEG, GIF or WebP) or a PDF")
    if len(picture) > SIZE_LIMIT:
        raise ToolFailed(f"the image is larger than {SIZE_LIMIT:,} bytes; scale it down first")
    return Image(f"data:{media_type};base64,{base64.b64encode(picture).decode()}", media_type)


def _from_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            beginning = file.read(SIZE_LIMIT + 1)
            return beginning + file.read(_PDF_LIMIT) if _PDF in beginning[:1024] else beginning
    except OSError as error:
        raise ToolFailed(f"can't read {path}: {error.strerror}") from error


def _from_data_uri(uri: str) -> bytes:
    head, _, data = uri.partition(",")
    raw = unquote_to_bytes(data)
    try:
        return base64.b64decode(raw, validate=True) if head.endswith(";base64") else raw
    except binascii.Error as error:
        raise ToolFailed("the image data in the URL is damaged") from error
