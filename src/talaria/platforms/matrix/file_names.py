"""Names under which files of strangers may lie in a folder of ours."""

import mimetypes
import re
from pathlib import Path

_UNSAFE = re.compile(r"[^\w .()+,=@-]")
_LONGEST = 120


def safe_name(name: str, media_type: str) -> str:
    """Return a name without folders, control characters or tricks, with an ending if it had none."""
    last = re.split(r"[/\\]", name)[-1]
    kept = _UNSAFE.sub("_", last).strip(" .") or "file"
    stem, ending = Path(kept).stem, Path(kept).suffix[:20]
    ending = ending or mimetypes.guess_extension(media_type) or ""
    while len((stem + ending).encode()) > _LONGEST:
        stem = stem[:-1]
    return (stem + ending).strip(" .") or "file"


def free_path(folder: Path, name: str) -> Path:
    """Make an empty file of this name in a folder, with a number where the name is taken, and return its path."""
    stem, ending = Path(name).stem, Path(name).suffix
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{stem}-{number}{ending}")
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return path
