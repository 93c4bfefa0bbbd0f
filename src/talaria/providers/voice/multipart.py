"""A form with a file in it, as HTTP carries it."""

import re
from collections.abc import Mapping

from msgspec import Struct

from talaria.core.ids import new_id

_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')


class Form(Struct, frozen=True):
    """The body of a request, and what it is."""

    content_type: str
    body: bytes


def form(fields: Mapping[str, str], name: str, file: bytes, media_type: str) -> Form:
    """Return a form with these fields, and with a file of this name as its field ``file``."""
    border = f"talaria-{new_id()}-{new_id()}"
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}' for key, value in fields.items()
    ]
    head = (
        f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="{_UNSAFE.sub("_", name)}"\r\n'
        f"Content-Type: {_UNSAFE.sub('_', media_type)}\r\n\r\n"
    )
    body = "\r\n".join([*parts, head]).encode() + file + f"\r\n--{border}--\r\n".encode()
    return Form(f"multipart/form-data; boundary={border}", body)
