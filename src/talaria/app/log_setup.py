"""Log file of a profile, readable by its owner only, with secrets masked."""

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
from talaria.settings.atomic_files import make_folder
from talaria.settings.profiles import Profile

LOG_NAME = "talaria.log"
LogFormat = Literal["text", "json"]
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(whose)s: %(message)s"
_MAX_BYTES = 5_000_000


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Log line in JSON; ``session`` and ``turn`` are empty if it was written outside a session."""

    at: datetime
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""
    platform: str = ""
    error: str = ""


def open_log(profile: Profile, level: str, mask: Callable[[str], str], style: LogFormat = "text") -> logging.Handler:
    """Send Talaria's log records to the profile's log file; the caller closes the handler with `close_log`.

    A large file is rotated first. Raises `StoreUnavailable` if the file cannot be written.
    """
    make_folder(profile.logs_folder)
    path = profile.logs_folder / LOG_NAME
    try:
        _rotate(path)
        handler = _LogFile(path)
    except OSError as error:
        raise StoreUnavailable(f"Can't write {path}: {error.strerror}.") from error
    handler.setFormatter(_JsonFormatter(mask) if style == "json" else _TextFormatter(mask))
    logger = logging.getLogger("talaria")
    logger.addHandler(handler)
    set_level(level)
    logger.propagate = False
    return handler


def set_level(level: str) -> None:
    """Log messages of this level and above from now on."""
    logging.getLogger("talaria").setLevel(level.upper())


def close_log(handler: logging.Handler) -> None:
    """Remove the handler and close the log file."""
    logging.getLogger("talaria").removeHandler(handler)
    handler.close()


class _LogFile(logging.Handler):
    """Handler that appends lines to a file.

    On a full disk lines are lost without an error; the next successful write logs their number.
    """

    def __init__(self, path: Path) -> None:
        # Before super().__init__(): logging closes every registered handler at exit, even if its constructor failed
        # later.
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        super().__init__()
        self._lost_count = 0
        self._has_partial_line = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            self._report_lost(record)
            self._append(line)
        except OSError:
            self._lost_count += 1
        except (TypeError, ValueError):  # a record that cannot be formatted is reported on standard error, as usual
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        super().close()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _report_lost(self, record: logging.LogRecord) -> None:
        if self._lost_count:
            notice = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "args": ()})
            notice.name, notice.levelno, notice.levelname = __name__, logging.WARNING, "WARNING"
            notice.msg = f"{self._lost_count} earlier lines couldn't be written"
            self._append(self.format(notice))
            self._lost_count = 0

    def _append(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        if self._has_partial_line:
            data = b"\n" + data
        written = os.write(self._descriptor, data)
        self._has_partial_line = False
        if written < len(data):
            self._truncate_partial(written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _truncate_partial(self, written: int) -> None:
        """Remove a partially written line, unless another process has written after it."""
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        self._has_partial_line = os.fstat(self._descriptor).st_size != end
        if not self._has_partial_line:
            os.ftruncate(self._descriptor, end - written)


class _TextFormatter(logging.Formatter):
    """Formatter for text lines with session, turn and traceback; secrets are masked."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        record.whose = _format_session()
        return self._mask(super().format(record))


class _JsonFormatter(logging.Formatter):
    """Formatter for JSON lines; each text is masked before it is encoded."""

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


def _format_session() -> str:
    """Return the session and turn of the current context.

    A record is formatted in the context that logged it.
    """
    context = current_context()
    if context is None or not context.session_id:
        return ""
    return f" [{context.session_id}{context.turn_id and '/'}{context.turn_id}]"


def _rotate(path: Path) -> None:
    """Rename a large log file, replacing the previous one, so that a new file is started."""
    if path.exists() and path.stat().st_size > _MAX_BYTES:
        path.replace(path.with_name(f"{LOG_NAME}.1"))
