"""Reader of the log file: entries of text or JSON lines, filtered, from a bounded part of the file."""

import re
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

MOST_BYTES = 524_288  # that are read for one page
LEVELS = ("debug", "info", "warning", "error", "critical")
_TEXT_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ([A-Z]+) ([\w.]+)(?: \[([\w-]+)(?:/([\w-]+))?\])?: (.*)", re.DOTALL
)


class LogEntry(Struct, frozen=True, omit_defaults=False):
    """An entry of the log; ``at`` is in the local time zone for text lines. ``message`` includes a traceback."""

    at: str
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""


class LogFilter(Struct, frozen=True):
    """Entries of at least this level, with a text (in any case) and of a session; empty values match all."""

    level: str = ""
    text: str = ""
    session: str = ""


class LogPage(Struct, frozen=True):
    """Entries in the order of the file, which has ``size`` bytes; they were read from ``start`` to ``end``."""

    entries: list[LogEntry]
    start: int
    end: int
    size: int


class _JsonLine(Struct, frozen=True):
    at: datetime
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""
    error: str = ""


_decode_line = msgspec.json.Decoder(_JsonLine).decode


def read_log(path: Path, log_filter: LogFilter, limit: int, *, after: int = -1, before: int = -1) -> LogPage:
    """Return the last matching entries, those after a position, or those before one; at most `MOST_BYTES` are read.

    A file that was replaced by a new one is read from its end again.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            end = min(before, size) if before >= 0 else size
            start = max(0, end - MOST_BYTES)
            if 0 <= after <= end:
                start = max(start, after)
            file.seek(start)
            data = file.read(end - start)
    except OSError:
        return LogPage([], 0, 0, 0)
    if start > 0 and start != after:  # the first line is incomplete
        skipped = data.find(b"\n") + 1
        start, data = start + skipped, data[skipped:]
    end = start + data.rfind(b"\n") + 1
    entries = [entry for entry in _parse(data[: end - start].decode(errors="replace")) if _matches(entry, log_filter)]
    return LogPage(entries[-limit:], start, end, size)


def _parse(text: str) -> list[LogEntry]:
    entries: list[LogEntry] = []
    for line in text.split("\n"):
        entry = _parse_line(line)
        if entry is not None:
            entries.append(entry)
        elif entries and line:
            last = entries[-1]
            entries[-1] = msgspec.structs.replace(last, message=f"{last.message}\n{line}")
    return entries


def _parse_line(line: str) -> LogEntry | None:
    if line.startswith("{"):
        try:
            found = _decode_line(line)
        except msgspec.MsgspecError:
            return None
        message = f"{found.message}\n{found.error}" if found.error else found.message
        return LogEntry(found.at.isoformat(), found.level, found.logger, message, found.session, found.turn)
    parts = _TEXT_LINE.fullmatch(line)
    if parts is None:
        return None
    at, fraction, level, logger, session, turn, message = parts.groups()
    return LogEntry(f"{at.replace(' ', 'T')}.{fraction}", level.lower(), logger, message, session or "", turn or "")


def _matches(entry: LogEntry, log_filter: LogFilter) -> bool:
    if (
        log_filter.level in LEVELS
        and entry.level in LEVELS
        and LEVELS.index(entry.level) < LEVELS.index(log_filter.level)
    ):
        return False
    if log_filter.session and not entry.session.startswith(log_filter.session):
        return False
    return log_filter.text.casefold() in f"{entry.logger} {entry.message}".casefold()
