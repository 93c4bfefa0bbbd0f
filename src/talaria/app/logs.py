"""The log of a profile: a file of its own, readable by its owner only, with secrets masked."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from talaria.core.errors import StoreUnavailable
from talaria.settings.files import make_folder
from talaria.settings.profiles import Profile

LOG_NAME = "talaria.log"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_BYTES = 5_000_000


def open_log(profile: Profile, level: str, mask: Callable[[str], str]) -> logging.Handler:
    """Send what Talaria logs to the profile's log; close the handler in the end."""
    make_folder(profile.logs_folder)
    path = profile.logs_folder / LOG_NAME
    try:
        _make_room(path)
        handler = logging.StreamHandler(os.fdopen(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a"))
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_Masked(mask))
    logger = logging.getLogger("talaria")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


def close_log(handler: logging.Handler) -> None:
    """Let go of the log."""
    logging.getLogger("talaria").removeHandler(handler)
    if isinstance(handler, logging.StreamHandler):
        handler.stream.close()
    handler.close()


class _Masked(logging.Formatter):
    """Formats a record, its traceback included, and masks what must not be read."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(super().format(record))


def _make_room(path: Path) -> None:
    """Keep the last file beside a new one when it has grown large."""
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.replace(path.with_name(f"{LOG_NAME}.1"))
