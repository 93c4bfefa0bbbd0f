"""Bodies of HTTP messages: forms with files, and decompression within a limit."""

import re
import zlib
from collections.abc import Mapping

from msgspec import Struct

from talaria.core.ids import new_id

_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')
_GZIP_OR_ZLIB, _RAW_DEFLATE = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_UNSUPPORTED = {"br", "zstd"}


class Form(Struct, frozen=True):
    """The body of a request, and its content type."""

    content_type: str
    body: bytes


class FormFile(Struct, frozen=True):
    """A file as a field of a form."""

    field: str
    name: str
    content: bytes
    media_type: str


def encode_form(fields: Mapping[str, str], *files: FormFile) -> Form:
    """Return a form with these fields and files."""
    border = f"talaria-{new_id()}-{new_id()}"
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    for file in files:
        head = (
            f'--{border}\r\nContent-Disposition: form-data; name="{file.field}"; '
            f'filename="{_UNSAFE.sub("_", file.name)}"\r\nContent-Type: {_UNSAFE.sub("_", file.media_type)}\r\n\r\n'
        )
        parts += [head.encode(), file.content, b"\r\n"]
    return Form(f"multipart/form-data; boundary={border}", b"".join([*parts, f"--{border}--\r\n".encode()]))


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
