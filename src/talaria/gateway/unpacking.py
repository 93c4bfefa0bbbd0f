"""The files of a message, fetched from its network before the turn: what they are, or why they are not there."""

import asyncio
import logging
import mimetypes
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from talaria.contracts.platform import Attachment, Platform
from talaria.core.errors import PlatformError, Rejected, StoreError
from talaria.core.messages import File, Image, Message, Part, Text
from talaria.core.pictures import picture_type
from talaria.gateway.hearing import Hearing
from talaria.gateway.stickers import Stickers
from talaria.sessions.admitted import Packed, named, unpacked, without_files

_AT_ONCE = 4
_MOST = 20
_PICTURE_LIMIT = 5_000_000  # bytes; what the usual providers take
_UNKNOWN = "application/octet-stream"

log = logging.getLogger(__name__)


class FetchLimits(Struct, frozen=True):
    """How long one file may take, and how many bytes it may have."""

    seconds: float
    size: int


class Unpacker:
    """Fetches from the networks of one gateway into ``media``, each file into a folder of its own there.

    Voice notes and stickers become words. ``mask`` takes secrets out of what is said about a failure.
    """

    def __init__(
        self,
        platforms: Mapping[str, Platform],
        media: Path,
        limits: Callable[[], FetchLimits],
        hearing: Hearing,
        stickers: Stickers,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._platforms = platforms
        self._media = media
        self._limits = limits
        self._hearing = hearing
        self._stickers = stickers
        self._mask = mask

    async def unpack(self, packed: Packed) -> Message:
        """Return the message with what its files are; one that cannot be fetched is a sentence that says why."""
        message = packed.message
        platform = self._platforms.get(message.route.address.platform) if message.route else None
        if platform is None:
            return without_files(message, "came along, and its network is not open here")
        gate = asyncio.Semaphore(_AT_ONCE)
        place = self._media / packed.session_id

        async def one(number: int, attachment: Attachment) -> tuple[Part, ...]:
            async with gate:
                return await self._parts(platform, attachment, place / f"{packed.item}-{number}")

        wanted, rest = message.attachments[:_MOST], message.attachments[_MOST:]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*numbered)) for numbered in enumerate(wanted, start=1)]
        notes = [Text(f"(There were {len(rest)} more files, which were not fetched.)")] if rest else []
        return unpacked(message, *(part for task in tasks for part in task.result()), *notes)

    async def _parts(self, platform: Platform, attachment: Attachment, folder: Path) -> tuple[Part, ...]:
        """Return what a file is, or a sentence about why it is not there."""
        try:
            return await self._taken_in(platform, attachment, folder)
        except StoreError:
            raise
        except PlatformError as error:
            log.warning("%s: a file was not fetched: %s", platform.name, error)
            why = self._mask(str(error)).rstrip(".")
        except OSError as error:
            log.warning("%s: a file was not kept: %s", platform.name, error)
            why = f"it could not be kept here ({error.strerror})"
        except Exception:  # a bug in an adapter costs one file, and no turn
            log.exception("%s: a file was not fetched", platform.name)
            why = "something went wrong here"
        return (Text(f"({named(attachment)} came along, and could not be fetched: {why}.)"),)

    async def _taken_in(self, platform: Platform, attachment: Attachment, folder: Path) -> tuple[Part, ...]:
        if attachment.kind == "sticker":
            known = await self._stickers.known(platform.name, attachment)
            if known is not None:
                return (known,)
        file = await self._fetched(platform, attachment, folder)
        if attachment.kind == "sticker":
            return (await self._stickers.described(platform.name, attachment, file),)
        part = await asyncio.to_thread(_recognised, file, attachment)
        if attachment.kind == "voice":
            return await self._hearing.words(file, part.media_type), part
        return (part,)

    async def _fetched(self, platform: Platform, attachment: Attachment, folder: Path) -> Path:
        limits = self._limits()
        if attachment.size > limits.size:
            raise Rejected(_too_large(attachment.size, limits.size))
        await asyncio.to_thread(_emptied, folder)
        try:
            async with asyncio.timeout(limits.seconds):
                file = await platform.fetch(attachment, folder)
        except TimeoutError as error:
            raise Rejected(f"it did not come within {limits.seconds:g} s") from error
        return await asyncio.to_thread(_checked, file, folder, limits.size)


def _emptied(folder: Path) -> None:
    """Make a folder with nothing in it: what an earlier attempt left there was cut off."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _checked(file: Path, folder: Path, limit: int) -> Path:
    """Return where a file is, if it is where it should be and no larger than it may be."""
    found = file.resolve()
    if not found.is_relative_to(folder.resolve()) or not found.is_file():
        raise Rejected("it was not put where files belong")
    size = found.stat().st_size
    if size > limit:
        shutil.rmtree(folder)
        raise Rejected(_too_large(size, limit))
    return found


def _too_large(size: int, limit: int) -> str:
    return f"it has {size / 1e6:.1f} MB, and {limit / 1e6:.1f} MB is the most"


def _recognised(file: Path, attachment: Attachment) -> Image | File:
    """Return a picture as one if models can take it: its content counts, not what the network says of it."""
    with file.open("rb") as opened:
        picture = picture_type(opened.read(16))
    if picture and attachment.kind != "document" and file.stat().st_size <= _PICTURE_LIMIT:
        return Image(str(file), picture)
    name = attachment.name or file.name
    return File(str(file), name, attachment.media_type or mimetypes.guess_type(name)[0] or _UNKNOWN)
