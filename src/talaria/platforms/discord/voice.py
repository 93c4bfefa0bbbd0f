"""Voice notes: how long one is, and how its waves look, told from the pages of an Ogg file."""

import base64
import struct

from msgspec import Struct

_RATE = 48_000  # of Opus, whatever was recorded
_BARS = 64
_HEAD = struct.Struct("<4sBBqIIIB")


class VoiceNote(Struct, frozen=True):
    """What Discord wants to know of a voice note."""

    seconds: float
    waveform: str


def read_voice(data: bytes) -> VoiceNote | None:
    """Return what a voice note sounds like; ``None`` for what is no Opus in Ogg.

    The waves are guessed: a packet takes more bytes where more is to be heard.
    """
    if b"OpusHead" not in data[:200]:
        return None
    sizes: list[int] = []
    place, last = 0, 0
    while place + _HEAD.size <= len(data):
        mark, _, _, position, _, _, _, segments = _HEAD.unpack_from(data, place)
        if mark != b"OggS":
            break
        lacing = data[place + _HEAD.size : place + _HEAD.size + segments]
        sizes += _packets(lacing)
        last = max(last, position)
        place += _HEAD.size + segments + sum(lacing)
    sounds = sizes[2:]  # the first two packets tell what the file is
    if not sounds or last <= 0:
        return None
    return VoiceNote(round(last / _RATE, 3), _waves(sounds))


def _packets(lacing: bytes) -> list[int]:
    """Return the sizes of the packets on a page: each goes on as long as its parts are full."""
    sizes, size = [], 0
    for part in lacing:
        size += part
        if part < 255:
            sizes.append(size)
            size = 0
    return [*sizes, size] if size else sizes


def _waves(sounds: list[int]) -> str:
    bars = min(_BARS, len(sounds))
    means = []
    for bar in range(bars):
        part = sounds[bar * len(sounds) // bars : (bar + 1) * len(sounds) // bars]
        means.append(sum(part) / len(part))
    loudest = max(means) or 1.0
    return base64.b64encode(bytes(round(255 * mean / loudest) for mean in means)).decode()
