"""Decompress HTTP bodies, never to more than a limit."""

import zlib

_GZIP_OR_ZLIB, _RAW_DEFLATE = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_UNSUPPORTED = {"br", "zstd"}


def decode_content(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content encoding, cut after ``limit`` + 1 bytes; raises `ValueError` if corrupt.

    ``encoding`` is the value of the header; unknown names leave the body unchanged.
    """
    name = encoding.strip().lower()
    if name in _UNSUPPORTED:
        raise ValueError(f"the content encoding {name} is not supported")
    if name not in {"gzip", "deflate"} or not body:
        return body[: limit + 1]
    is_raw = name == "deflate" and body[0] & 0x0F != zlib.DEFLATED
    try:
        return _inflate(body, _RAW_DEFLATE if is_raw else _GZIP_OR_ZLIB, limit + 1, must_end=name == "deflate")
    except zlib.error as error:
        raise ValueError(f"the body is not {name}: {error}") from error


def _inflate(body: bytes, window: int, most: int, *, must_end: bool) -> bytes:
    parts, size = [], 0
    while body and size < most:
        stream = zlib.decompressobj(window)
        try:
            parts.append(stream.decompress(body, most - size))
        except zlib.error:
            if not parts:
                raise
            break  # padding after the last member
        size += len(parts[-1])
        if must_end and not stream.eof and size < most:
            raise zlib.error("it ends too early")
        body = stream.unused_data  # a gzip body may have several members
    return b"".join(parts)
