"""Attachments: files are fetched before their turn, voice notes transcribed, stickers described."""

import asyncio
import logging
import mimetypes
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct

from talaria.agent.auxiliary import VisionModel, describe_image
from talaria.contracts.platform import Attachment, Platform
from talaria.contracts.provider import Transcriber
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import PlatformError, ProviderError, Rejected, StoreError, TalariaError
from talaria.core.messages import File, Image, Message, Part, Text, image_type
from talaria.runtime.turns import PendingAttachments, attachment_label, replace_files, to_transcript_message

STICKER = NamedValue("sticker", str)  # the description, by network and id
_QUESTION = "This is a sticker from a chat. Say in one short sentence what it shows and what the sender means by it."
_MAX_CHARACTERS = 300
_SECONDS = 60.0
_NOT_CONFIGURED = (
    "(This voice note has no transcript: transcription isn't set up. The owner of this agent can set it up with the"
    " setting voice.transcribe.)"
)
_MAX_PARALLEL = 4
_MAX_FILES = 20
_PICTURE_LIMIT = 5_000_000  # bytes; accepted by the common providers
_DEFAULT_TYPE = "application/octet-stream"

log = logging.getLogger(__name__)


class FetchLimits(Struct, frozen=True):
    """Limits for one file: time in seconds, size in bytes."""

    seconds: float
    size: int


class VoiceNoteTranscriber:
    """Transcriber of voice notes; ``find`` returns the configured transcriber or raises if the settings are invalid.

    ``seconds`` returns the time limit for one note.
    """

    def __init__(
        self,
        find: Callable[[], Transcriber | None],
        seconds: Callable[[], float],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._mask = mask

    async def transcribe_note(self, file: Path, media_type: str) -> Text:
        """Return the transcript of a voice note, or a text with the reason why there is none."""
        try:
            transcriber = self._find()
            if transcriber is None:
                return Text(_NOT_CONFIGURED)
            async with asyncio.timeout(self._seconds()):
                text = await transcriber.transcribe(file, media_type)
        except TimeoutError:
            return _describe_failure(f"it took longer than {self._seconds():g} s")
        except ProviderError as error:
            return _describe_failure(self._mask(error.public), self._mask(str(error)))
        except TalariaError as error:
            return _describe_failure(self._mask(str(error)))
        return Text(f"[voice note] {text}" if text else "[voice note without speech]")


class StickerDescriber:
    """Describer of stickers by their unique ids; ``find`` returns a vision model, if there is one."""

    def __init__(
        self, store: Store, find: Callable[[], Awaitable[VisionModel | None]], seconds: float = _SECONDS
    ) -> None:
        self._store = store
        self._find_model = find
        self._seconds = seconds
        self._locks: dict[str, asyncio.Lock] = {}

    async def find_description(self, platform: str, attachment: Attachment) -> Text | None:
        """Return the stored description of a sticker; ``None`` if it should be described first.

        For a sticker that cannot be described, the hint of the network is returned.
        """
        if not attachment.unique_id or not attachment.media_type.startswith("image/"):
            return _make_text(attachment, "")
        stored = await self._store.read(lambda tx: STICKER.get(tx, _build_key(platform, attachment)))
        return _make_text(attachment, stored) if stored is not None else None

    async def describe_sticker(self, platform: str, attachment: Attachment, file: Path) -> Text:
        """Return and store the description of a sticker; without one, return the hint of the network."""
        key = _build_key(platform, attachment)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = await self.find_description(platform, attachment)
            if known is None:
                description = await self._describe_image(file)
                if description:
                    await self._store.write(lambda tx: STICKER.write(tx, key, description))
                known = _make_text(attachment, description)
        self._locks.pop(key, None)
        return known

    async def _describe_image(self, file: Path) -> str:
        try:
            media_type = await asyncio.to_thread(_detect_media_type, file)
            vision_model = await self._find_model() if media_type else None
            if media_type is None or vision_model is None:
                return ""
            async with asyncio.timeout(self._seconds):
                description = await describe_image(vision_model, Image(str(file), media_type), _QUESTION)
        except (TalariaError, TimeoutError) as error:
            log.warning("couldn't describe a sticker: %s", str(error) or "it took too long")
            return ""
        return " ".join(description.split())[:_MAX_CHARACTERS]


class AttachmentFetcher:
    """Fetcher of attachments from the networks of one gateway, each into its own folder below ``media``.

    Voice notes and stickers are turned into text. ``mask`` removes secrets from error texts.
    """

    def __init__(
        self,
        platforms: Mapping[str, Platform],
        media: Path,
        limits: Callable[[], FetchLimits],
        transcriber_for_notes: VoiceNoteTranscriber,
        stickers: StickerDescriber,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._platforms = platforms
        self._media = media
        self._limits = limits
        self._transcriber = transcriber_for_notes
        self._stickers = stickers
        self._mask = mask

    async def unpack(self, pending: PendingAttachments) -> Message:
        """Return the message with its files; a file that cannot be fetched is replaced by the reason."""
        message = pending.message
        platform = self._platforms.get(message.route.address.platform) if message.route else None
        if platform is None:
            return replace_files(message, "could not be downloaded, because its network isn't connected here")
        gate = asyncio.Semaphore(_MAX_PARALLEL)
        session_folder = self._media / pending.session_id

        async def unpack_one(number: int, attachment: Attachment) -> tuple[Part, ...]:
            async with gate:
                return await self._fetch_parts(platform, attachment, session_folder / f"{pending.item}-{number}")

        fetched, rest = message.attachments[:_MAX_FILES], message.attachments[_MAX_FILES:]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(unpack_one(*numbered)) for numbered in enumerate(fetched, start=1)]
        notes = [Text(f"({len(rest)} more files were not downloaded.)")] if rest else []
        return to_transcript_message(message, *(part for task in tasks for part in task.result()), *notes)

    async def _fetch_parts(self, platform: Platform, attachment: Attachment, folder: Path) -> tuple[Part, ...]:
        """Return the parts of a file, or a text with the reason why it was not fetched.

        Store errors are raised.
        """
        try:
            return await self._convert(platform, attachment, folder)
        except StoreError:
            raise
        except PlatformError as error:
            log.warning("%s: couldn't download a file: %s", platform.name, error)
            why = self._mask(str(error)).rstrip(".")
        except OSError as error:
            log.warning("%s: couldn't save a file: %s", platform.name, error)
            why = f"it couldn't be saved here ({error.strerror})"
        except Exception:  # a bug in an adapter costs one file, not the turn
            log.exception("%s: couldn't download a file", platform.name)
            why = "something went wrong here"
        return (Text(f"({attachment_label(attachment)} could not be downloaded: {why}.)"),)

    async def _convert(self, platform: Platform, attachment: Attachment, folder: Path) -> tuple[Part, ...]:
        if attachment.kind == "sticker":
            known = await self._stickers.find_description(platform.name, attachment)
            if known is not None:
                return (known,)
        file = await self._fetch(platform, attachment, folder)
        if attachment.kind == "sticker":
            return (await self._stickers.describe_sticker(platform.name, attachment, file),)
        part = await asyncio.to_thread(_make_part, file, attachment)
        if attachment.kind == "voice":
            return await self._transcriber.transcribe_note(file, part.media_type), part
        return (part,)

    async def _fetch(self, platform: Platform, attachment: Attachment, folder: Path) -> Path:
        limits = self._limits()
        if attachment.size > limits.size:
            raise Rejected(_describe_size(attachment.size, limits.size))
        await asyncio.to_thread(_empty_folder, folder)
        try:
            async with asyncio.timeout(limits.seconds):
                file = await platform.fetch(attachment, folder)
        except TimeoutError as error:
            raise Rejected(f"it didn't arrive within {limits.seconds:g} s") from error
        return await asyncio.to_thread(_check_file, file, folder, limits.size)


def _empty_folder(folder: Path) -> None:
    """Create an empty folder, removing incomplete files of an earlier attempt."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _check_file(file: Path, folder: Path, limit: int) -> Path:
    """Return the resolved path; raises `Rejected` if the file is outside its folder or too large."""
    found = file.resolve()
    if not found.is_relative_to(folder.resolve()) or not found.is_file():
        raise Rejected("it was saved in the wrong folder")
    size = found.stat().st_size
    if size > limit:
        shutil.rmtree(folder)
        raise Rejected(_describe_size(size, limit))
    return found


def _describe_size(size: int, limit: int) -> str:
    return f"it has {size / 1e6:.1f} MB; the limit is {limit / 1e6:.1f} MB"


def _make_part(file: Path, attachment: Attachment) -> Image | File:
    """Return an image part if models accept the file, else a file part.

    The content decides, not the type that the network reports.
    """
    with file.open("rb") as opened:
        picture = image_type(opened.read(16))
    if picture and attachment.kind != "document" and file.stat().st_size <= _PICTURE_LIMIT:
        return Image(str(file), picture)
    name = attachment.name or file.name
    return File(str(file), name, attachment.media_type or mimetypes.guess_type(name)[0] or _DEFAULT_TYPE)


def _describe_failure(why: str, detail: str = "") -> Text:
    log.warning("couldn't transcribe a voice note: %s", detail or why)
    return Text(f"(This voice note couldn't be transcribed: {why.rstrip('.')}.)")


def _build_key(platform: str, attachment: Attachment) -> str:
    return f"{platform}:{attachment.unique_id}"


def _make_text(attachment: Attachment, description: str) -> Text:
    sticker = f"sticker {attachment.hint}".rstrip()
    return Text(f"[{sticker}: {description}]" if description else f"[{sticker}]")


def _detect_media_type(file: Path) -> str | None:
    with file.open("rb") as opened:
        return image_type(opened.read(16))
