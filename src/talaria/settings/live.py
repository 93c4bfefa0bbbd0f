"""Current settings of a running process, with a generation number."""

from pathlib import Path

from talaria.settings.model import Settings

FileStamp = tuple[int, int, int] | None


class LiveSettings:
    """Current settings, replaced as a whole by `replace`.

    ``generation`` counts the replacements since the process started; equal generations mean identical settings.
    """

    def __init__(self, current: Settings) -> None:
        self.current = current
        self.generation = 0

    def replace(self, settings: Settings) -> None:
        """Replace the settings."""
        self.current = settings
        self.generation += 1


def read_stamp(path: Path) -> FileStamp:
    """Return what differs after a file was changed: time, size and number; ``None`` if it can't be reached."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
