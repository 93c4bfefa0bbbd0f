"""The tools vision, image_generate and speak: look at images, and make images and recordings for the person."""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote_to_bytes

from msgspec import Meta, Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ImageMaker, ModelReply, ModelRequest, Provider, SourceImage, Speaker
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import OverBudget, ProviderError, Refused, ToolFailed
from talaria.core.messages import File, Image, Message, Text, image_type
from talaria.tools.files.text_file import failing
from talaria.tools.send.tool import SendFile, SendFileArguments
from talaria.tools.web.fetch import WebClient

_LARGEST_SOURCE = 25_000_000  # bytes; the limit of OpenAI
_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}
_LONGEST_NAME = 40
_RECORDING = "speech"
_RECORDING_SUFFIXES = {"audio/ogg": ".ogg", "audio/wav": ".wav", "audio/mpeg": ".mp3"}
_FORMATS = frozenset({*_SUFFIXES.values(), *_RECORDING_SUFFIXES.values()})
SIZE_LIMIT = 5_000_000  # bytes; the limit of most providers
_OUTPUT_TOKENS = 1_500
_WEB = ("http://", "https://")
_PDF = b"%PDF-"
_PDF_LIMIT = 50_000_000  # bytes


class ImageGenerateArguments(Struct, frozen=True):
    """A description of an image, and images to edit."""

    prompt: Annotated[str, Meta(min_length=1)]
    edit: Annotated[tuple[str, ...], Meta(max_length=8, description="paths of images to change or combine")] = ()
    size: Annotated[str, Meta(pattern=r"^(\d{2,4}x\d{2,4}|auto)?$", description="for example 1024x1024")] = ""
    path: Annotated[str, Meta(description="where to save it")] = ""


class ImageGenerate:
    """Makes images with ``maker``; ``delivery`` sends them, ``None`` where the person can open the file."""

    name = "image_generate"
    description = "Make an image from a description, or edit images. It is saved and delivered."
    effect = Effect.IRREVERSIBLE  # it costs money each time
    arguments: type[Struct] = ImageGenerateArguments

    def __init__(self, maker: Callable[[], ImageMaker], delivery: SendFile | None, seconds: float) -> None:
        self._maker = maker
        self._delivery = delivery
        self._seconds = seconds

    def proposed_action(self, arguments: ImageGenerateArguments) -> ProposedAction:
        """Describe the file that is written."""
        return ProposedAction("write", arguments.path or _make_name(arguments.prompt))  # its format isn't known yet

    async def run(self, arguments: ImageGenerateArguments, call: Call) -> ToolOutput:
        """Make the image, save it, and report where it is."""
        paths = [call.workspace.resolve(path) for path in arguments.edit]
        sources = tuple(await asyncio.to_thread(lambda: [_read_source(path) for path in paths]))
        try:
            async with asyncio.timeout(self._seconds):
                made = await self._maker().make(arguments.prompt, size=arguments.size, sources=sources)
        except TimeoutError as error:
            raise ToolFailed(f"the image wasn't ready within {self._seconds:g} s") from error
        except (ProviderError, OverBudget, Refused) as error:
            raise ToolFailed(f"no image was made: {error.for_owner}") from error
        path = call.workspace.resolve(arguments.path or _make_name(arguments.prompt))
        suffix = _SUFFIXES[made.media_type]
        file = await asyncio.to_thread(_save, path, made.content, suffix, is_chosen=bool(arguments.path))
        return await _deliver_file(file, made.media_type, self._delivery, call)


class SpeakArguments(Struct, frozen=True):
    """A text to speak."""

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    path: Annotated[str, Meta(description="where to save it")] = ""


class Speak:
    """Speaks with the configured voice; ``delivery`` sends the recording, ``None`` where the person can open it."""

    name = "speak"
    description = "Turn text into speech. The recording is saved and delivered."
    effect = Effect.IRREVERSIBLE  # a provider charges it each time
    arguments: type[Struct] = SpeakArguments

    def __init__(self, speaker: Callable[[], Speaker | None], delivery: SendFile | None, seconds: float) -> None:
        self._speaker = speaker
        self._delivery = delivery
        self._seconds = seconds

    def proposed_action(self, arguments: SpeakArguments) -> ProposedAction:
        """Describe the file that is written."""
        return ProposedAction("write", arguments.path or _RECORDING)  # its format isn't known yet

    async def run(self, arguments: SpeakArguments, call: Call) -> ToolOutput:
        """Record the text, save it, and report where it is."""
        try:
            speaker = self._speaker()
            if speaker is None:
                raise ToolFailed("no speaker is set up (voice.speaker)")
            async with asyncio.timeout(self._seconds):
                recording = await speaker.speak(arguments.text)
        except TimeoutError as error:
            raise ToolFailed(f"the recording wasn't ready within {self._seconds:g} s") from error
        except (ProviderError, Refused) as error:
            raise ToolFailed(f"nothing was recorded: {error.for_owner}") from error
        path = call.workspace.resolve(arguments.path or _RECORDING)
        suffix = _RECORDING_SUFFIXES.get(recording.media_type, ".ogg")
        file = await asyncio.to_thread(_save, path, recording.data, suffix, is_chosen=bool(arguments.path))
        return await _deliver_file(file, recording.media_type, self._delivery, call)


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
        parts = (Text(arguments.question), _encode_image(picture))
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
            return _decode_data_uri(source)
        if source.startswith(_WEB):
            return (await self._client.get(source)).body
        return await asyncio.to_thread(_read_file, call.workspace.resolve(source.removeprefix("file://")))


async def _deliver_file(file: Path, media_type: str, delivery: SendFile | None, call: Call) -> ToolOutput:
    """Send a new file, or name it where the person can open it, and report it to the model."""
    if delivery is None:
        is_image = media_type.startswith("image/")
        made = Image(str(file), media_type) if is_image else File(str(file), file.name, media_type)
        return ToolOutput(f"Saved {file}.", files=(made,))
    sent = await delivery.run(SendFileArguments(str(file)), call)
    return ToolOutput(f"Saved {file}. {sent.text}", files=sent.files)


def _save(path: Path, content: bytes, suffix: str, *, is_chosen: bool) -> Path:
    """Write a file with the suffix of its format, and return its path; only a chosen name replaces a file."""
    if not is_chosen or (path.suffix.lower() in _FORMATS and path.suffix.lower() != suffix):
        path, is_chosen = path.with_suffix(suffix), False
    with failing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        number = 1
        while not is_chosen:
            free = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            try:
                with free.open("xb") as file:
                    file.write(content)
                return free
            except FileExistsError:
                number += 1
        path.write_bytes(content)
    return path


def _read_source(path: Path) -> SourceImage:
    with failing(path), path.open("rb") as file:
        content = file.read(_LARGEST_SOURCE + 1)
    media_type = image_type(content[:16])
    if not media_type:
        raise ToolFailed(f"{path} isn't an image (PNG, JPEG, GIF or WebP).")
    if len(content) > _LARGEST_SOURCE:
        raise ToolFailed(f"{path} is larger than {_LARGEST_SOURCE:,} bytes.")
    return SourceImage(path.name, content, media_type)


def _make_name(prompt: str) -> str:
    """Return a file name for a description."""
    words = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")
    return words[:_LONGEST_NAME].strip("-") or "image"


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


def _encode_image(picture: bytes) -> Image:
    media_type = image_type(picture)
    if not media_type:
        raise ToolFailed("not an image (PNG, JPEG, GIF or WebP) or a PDF")
    if len(picture) > SIZE_LIMIT:
        raise ToolFailed(f"the image is larger than {SIZE_LIMIT:,} bytes; scale it down first")
    return Image(f"data:{media_type};base64,{base64.b64encode(picture).decode()}", media_type)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            beginning = file.read(SIZE_LIMIT + 1)
            return beginning + file.read(_PDF_LIMIT) if _PDF in beginning[:1024] else beginning
    except OSError as error:
        raise ToolFailed(f"can't read {path}: {error.strerror}") from error


def _decode_data_uri(uri: str) -> bytes:
    head, _, data = uri.partition(",")
    raw = unquote_to_bytes(data)
    try:
        return base64.b64decode(raw, validate=True) if head.endswith(";base64") else raw
    except binascii.Error as error:
        raise ToolFailed("the image data in the URL is damaged") from error
