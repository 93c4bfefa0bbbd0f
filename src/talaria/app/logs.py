"""The log of a profile: a file of its own, readable by its owner only, with secrets masked."""

import errno
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from talaria.core.errors import StoreUnavailable
from talaria.core.session_context import current_context
from talaria.settings.files import make_folder
from talaria.settings.profiles import Profile

LOG_NAME = "talaria.log"
LogFormat = Literal["text", "json"]
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(whose)s: %(message)s"
_MOST_BYTES = 5_000_000


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log for programs; ``session`` and ``turn`` are those in which it was written, if it was in any."""

    at: datetime
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""
    platform: str = ""
    error: str = ""


def open_log(profile: Profile, level: str, mask: Callable[[str], str], style: LogFormat = "text") -> logging.Handler:
    """Send what Talaria logs to the profile's log; close the handler in the end."""
    make_folder(profile.logs_folder)
    path = profile.logs_folder / LOG_NAME
    try:
        _make_room(path)
        handler = _LogFile(path)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_Structured(mask) if style == "json" else _Masked(mask))
    logger = logging.getLogger("talaria")
    logger.addHandler(handler)
    set_level(level)
    logger.propagate = False
    return handler


def set_level(level: str) -> None:
    """Log messages of this level and above from now on."""
    logging.getLogger("talaria").setLevel(level.upper())


def close_log(handler: logging.Handler) -> None:
    """Let go of the log."""
    logging.getLogger("talaria").removeHandler(handler)
    handler.close()


class _LogFile(logging.Handler):
    """Appends lines to a file. On a full disk they are lost, and nobody is bothered: how many is told afterwards."""

    def __init__(self, path: Path) -> None:
        # First: logging closes every handler at exit, also one whose making failed after the call of super().
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        super().__init__()
        self._lost = 0
        self._torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            self._tell_of_lost(record)
            self._append(line)
        except OSError:
            self._lost += 1
        except (TypeError, ValueError):  # a record that cannot be formatted is told on the standard error, as usual
            self.handleError(record)

    def close(self) -> None:
        """Let go of the file."""
        super().close()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _tell_of_lost(self, record: logging.LogRecord) -> None:
        if self._lost:
            told = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "args": ()})
            told.name, told.levelno, told.levelname = __name__, logging.WARNING, "WARNING"
            told.msg = f"{self._lost} lines before this one could not be written"
            self._append(self.format(told))
            self._lost = 0

    def _append(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        if self._torn:
            data = b"\n" + data
        written = os.write(self._descriptor, data)
        self._torn = False
        if written < len(data):
            self._take_back(written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _take_back(self, written: int) -> None:
        """Take back a part of a line, unless another process has written behind it."""
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        self._torn = os.fstat(self._descriptor).st_size != end
        if not self._torn:
            os.ftruncate(self._descriptor, end - written)


class _Masked(logging.Formatter):
    """Formats a record, its traceback included, says whose turn it is of, and masks what must not be read."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        record.whose = _whose()
        return self._mask(super().format(record))


class _Structured(logging.Formatter):
    """Formats a record as one line of JSON; each text is masked before it is quoted."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        context = current_context()
        line = LogLine(
            at=datetime.fromtimestamp(record.created, UTC),
            level=record.levelname.lower(),
            logger=record.name,
            message=self._mask(record.getMessage()),
            session=context.session_id if context else "",
            turn=context.turn_id if context else "",
            platform=context.platform if context else "",
            error=self._mask(self.formatException(record.exc_info)) if record.exc_info else "",
        )
        return msgspec.json.encode(line).decode()


def _whose() -> str:
    """Return the session and the turn of the present context: a record is formatted where it was made."""
    context = current_context()
    if context is None or not context.session_id:
        return ""
    return f" [{context.session_id}{context.turn_id and '/'}{context.turn_id}]"


def _make_room(path: Path) -> None:
    """Keep the last file beside a new one when it has grown large."""
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.replace(path.with_name(f"{LOG_NAME}.1"))
