"""Files on their way: read to be sent, and kept under names that are safe and not taken."""

import base64
import binascii
from pathlib import Path, PurePath
from typing import Any

from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.files import safe_name


def read_upload(file: File | Image, limit: int) -> dict[str, Any]:
    """Return a file as the library takes it, or raise `Rejected` where Slack would not take it."""
    name = _name_of(file)
    try:
        if file.source.startswith("data:"):
            data = base64.b64decode(file.source.partition(",")[2], validate=True)
        else:
            path = Path(file.source.removeprefix("file://"))
            if path.stat().st_size > limit:
                raise Rejected(f"{name} is larger than {limit} bytes")
            data = path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"a file cannot be read: {error}") from error
    if not 0 < len(data) <= limit:
        raise Rejected(f"{name} is empty, or larger than {limit} bytes")
    return {"file": data, "filename": name, "title": name}


def _name_of(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_name(PurePath(file.source).name, file.media_type)
