"""Which pictures models take, told by their first bytes."""

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def picture_type(beginning: bytes) -> str | None:
    """Return the media type of such a picture, ``None`` for anything else; twelve bytes are enough."""
    if beginning.startswith(b"RIFF") and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _BEGINNINGS.items() if beginning.startswith(magic)), None)
