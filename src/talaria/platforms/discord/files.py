"""Files on their way: read before they are sent, kept under safe names when they come."""

import base64
import binascii
import io
from pathlib import Path, PurePath

from discord import File as Sent
from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.discord.voice import VoiceNote, read_voice
from talaria.platforms.files import safe_name


class Parcel(Struct, frozen=True):
    """A file that is ready to go; a voice note goes alone."""

    name: str
    data: bytes
    voice: VoiceNote | None = None

    def sent(self) -> Sent:
        """Return it as the library takes it."""
        return Sent(io.BytesIO(self.data), filename=self.name)


def pack(file: File | Image, limit: int) -> Parcel:
    """Read a file, or raise `Rejected` if Discord would not take it."""
    data = _bytes_of(file.source, limit)
    name = _name_of(file)
    if not data:
        raise Rejected(f"{name} is empty, and Discord takes no empty files")
    return Parcel(name, data, read_voice(data) if file.media_type.startswith("audio/") else None)


def is_remote(file: File | Image) -> bool:
    """Tell whether a file is somewhere on the web, where Discord finds it by its address."""
    return file.source.startswith(("http://", "https://"))


def _name_of(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_name(PurePath(file.source).name)


def _bytes_of(source: str, limit: int) -> bytes:
    try:
        if source.startswith("data:"):
            data = base64.b64decode(source.partition(",")[2], validate=True)
            _check(len(data), limit)
            return data
        path = Path(source.removeprefix("file://"))
        _check(path.stat().st_size, limit)
        return path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"a file cannot be read: {error}") from error


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise Rejected(f"a file has {size / 1024**2:.1f} MB, and Discord takes {limit / 1024**2:g} MB")
