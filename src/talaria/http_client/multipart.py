"""Forms with files, as some APIs take them."""

import re
from collections.abc import Mapping

from msgspec import Struct

from talaria.core.ids import new_id

_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')


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
