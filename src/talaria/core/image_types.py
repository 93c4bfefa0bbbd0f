"""Image formats that models accept, recognised by their first bytes."""

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(head: bytes) -> str | None:
    """Return the media type of an image, or ``None`` for anything else; twelve bytes are enough."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _SIGNATURES.items() if head.startswith(magic)), None)
