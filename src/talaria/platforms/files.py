"""Files of strangers, kept in a folder of ours under names that are safe and not taken."""

import mimetypes
import os
import re
from itertools import count
from pathlib import Path

from talaria.platforms.text import sendable

_UNSAFE = re.compile(r"[^\w .()+,=@-]+")
_LONGEST = 120  # bytes
_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700


def safe_name(name: str, media_type: str = "") -> str:
    """Return a name that is one part of a path, hides nothing, and has an ending if one is known."""
    last = re.split(r"[/\\]", sendable(name))[-1]
    kept = Path(_UNSAFE.sub("_", last).strip(" .") or "file")
    stem, ending = kept.stem, kept.suffix[:20] or mimetypes.guess_extension(media_type) or ""
    while len((stem + ending).encode()) > _LONGEST:
        stem = stem[:-1]
    return (stem + ending).strip(" .") or "file"


def save(data: bytes, name: str, folder: Path, media_type: str = "") -> Path:
    """Write a file into a folder and return where it is; what has the name already stays as it is."""
    folder.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    safe = Path(safe_name(name, media_type))
    for number in count(1):
        path = folder / (safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY_FILE)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return path
    raise AssertionError
