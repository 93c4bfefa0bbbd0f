"""Files from the network, kept under names that are safe and not taken."""

from itertools import count
from pathlib import Path

from talaria.platforms.telegram.outgoing import safe_name

DOWNLOAD_LIMIT = 20 * 1024 * 1024


def save(data: bytes, name: str, folder: Path) -> Path:
    """Write a file into a folder and return where it is; what has the name already stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    safe = Path(safe_name(name))
    for number in count(1):
        path = folder / (safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise AssertionError
