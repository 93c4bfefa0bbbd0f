"""Received files, stored in our folder under safe and unused names, and text that networks accept."""

import mimetypes
import os
import re
from itertools import count
from pathlib import Path

_LINE_ENDS = re.compile(r"\r\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_UNSAFE = re.compile(r"[^\w .()+,=@-]+")
_MAX_NAME_BYTES = 120  # bytes
_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700


def sanitize_text(text: str) -> str:
    """Return a text without untransmittable or invisible characters."""
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _LINE_ENDS.sub("\n", text)))


def safe_file_name(name: str, media_type: str = "") -> str:
    """Return a name that is one path component, hides nothing, and has an extension if one is known."""
    base_name = re.split(r"[/\\]", sanitize_text(name))[-1]
    cleaned = Path(_UNSAFE.sub("_", base_name).strip(" .") or "file")
    stem, ending = cleaned.stem, cleaned.suffix[:20] or mimetypes.guess_extension(media_type) or ""
    while len((stem + ending).encode()) > _MAX_NAME_BYTES:
        stem = stem[:-1]
    return (stem + ending).strip(" .") or "file"


def save_file(data: bytes, name: str, folder: Path, media_type: str = "") -> Path:
    """Write a file into a folder and return its path; existing files are not replaced."""
    folder.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    safe = Path(safe_file_name(name, media_type))
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
