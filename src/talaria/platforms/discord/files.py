"""Files sent to and received from Discord."""

import base64
import binascii
import io
import struct
from pathlib import Path, PurePath

from discord import File as Sent
from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.files import safe_file_name

_SAMPLE_RATE = 48_000  # of Opus, whatever was recorded


_MOST_BARS = 64


_PAGE_HEADER = struct.Struct("<4sBBqIIIB")


class VoiceNote(Struct, frozen=True):
    """Properties of a voice note that Discord requires."""

    seconds: float
    waveform: str


def read_voice(data: bytes) -> VoiceNote | None:
    """Return the properties of a voice note; ``None`` for anything but Opus in Ogg.

    The waveform is estimated: a louder packet takes more bytes.
    """
    if b"OpusHead" not in data[:200]:
        return None
    sizes: list[int] = []
    offset, last_granule = 0, 0
    while offset + _PAGE_HEADER.size <= len(data):
        magic, _, _, position, _, _, _, segments = _PAGE_HEADER.unpack_from(data, offset)
        if magic != b"OggS":
            break
        lacing = data[offset + _PAGE_HEADER.size : offset + _PAGE_HEADER.size + segments]
        sizes += _packet_sizes(lacing)
        last_granule = max(last_granule, position)
        offset += _PAGE_HEADER.size + segments + sum(lacing)
    audio_packets = sizes[2:]  # the first two packets are headers
    if not audio_packets or last_granule <= 0:
        return None
    return VoiceNote(round(last_granule / _SAMPLE_RATE, 3), _build_waveform(audio_packets))


def _packet_sizes(lacing: bytes) -> list[int]:
    """Return the sizes of the packets on a page: each continues while its segments are full."""
    sizes, size = [], 0
    for part in lacing:
        size += part
        if part < 255:
            sizes.append(size)
            size = 0
    return [*sizes, size] if size else sizes


def _build_waveform(audio_packets: list[int]) -> str:
    bars = min(_MOST_BARS, len(audio_packets))
    means = []
    for bar in range(bars):
        part = audio_packets[bar * len(audio_packets) // bars : (bar + 1) * len(audio_packets) // bars]
        means.append(sum(part) / len(part))
    loudest = max(means) or 1.0
    return base64.b64encode(bytes(round(255 * mean / loudest) for mean in means)).decode()


class OutgoingFile(Struct, frozen=True):
    """A file ready to send; a voice note is sent alone."""

    name: str
    data: bytes
    voice: VoiceNote | None = None

    def to_discord_file(self) -> Sent:
        """Return it in the library's form."""
        return Sent(io.BytesIO(self.data), filename=self.name)


def read_outgoing_file(file: File | Image, limit: int) -> OutgoingFile:
    """Read a file, or raise `Rejected` if Discord wouldn't accept it."""
    data = _read_bytes(file.source, limit)
    name = _file_name(file)
    if not data:
        raise Rejected(f"{name} is empty, and Discord doesn't accept empty files")
    return OutgoingFile(name, data, read_voice(data) if file.media_type.startswith("audio/") else None)


def is_remote(file: File | Image) -> bool:
    """Return whether a file is on the web, where Discord finds it by its URL."""
    return file.source.startswith(("http://", "https://"))


def _file_name(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_file_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_file_name(PurePath(file.source).name)


def _read_bytes(source: str, limit: int) -> bytes:
    try:
        if source.startswith("data:"):
            data = base64.b64decode(source.partition(",")[2], validate=True)
            _check_size(len(data), limit)
            return data
        path = Path(source.removeprefix("file://"))
        _check_size(path.stat().st_size, limit)
        return path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"can't read a file: {error}") from error


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise Rejected(f"the file has {size / 1024**2:.1f} MB; Discord accepts {limit / 1024**2:g} MB")
