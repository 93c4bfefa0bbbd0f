"""Files on their way: read to be sent, and kept under names that are safe and not taken."""

import base64
import binascii
import mimetypes
import re
from itertools import count
from pathlib import Path, PurePath
from typing import Any

from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.slack.outgoing import sendable

_UNSAFE = re.compile(r"[^\w.()+,=@ -]+")
_LONGEST = 120


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


def save(data: bytes, name: str, media_type: str, folder: Path) -> Path:
    """Write a file into a folder and return where it is; what has the name already stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    safe = Path(safe_name(name, media_type))
    for number in count(1):
        path = folder / (safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise AssertionError


def safe_name(name: str, media_type: str = "") -> str:
    """Return a file name that is one part of a path, hides nothing and has an ending if one is known."""
    last = re.split(r"[/\\]", sendable(name))[-1]
    kept = Path(_UNSAFE.sub("_", last).strip(" .") or "file")
    stem, ending = kept.stem, kept.suffix[:20] or mimetypes.guess_extension(media_type) or ""
    while len((stem + ending).encode()) > _LONGEST:
        stem = stem[:-1]
    return (stem + ending).strip(" .") or "file"


def _name_of(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_name(PurePath(file.source).name, file.media_type)
