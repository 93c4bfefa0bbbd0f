"""Poll all background processes each second: watched lines, growing outputs, leftover processes, reports."""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from talaria.contracts.background_processes import BackgroundProcess, change_process, describe_outcome, process_label
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.os_processes import is_same_process
from talaria.tools.output import make_readable
from talaria.tools.process.lifecycle import ROTATE_AT, LeftBehind, ProcessFiles

MOST_NOTICES = 10
APART = timedelta(seconds=10)
_MOST_LINES = 20
_LONGEST_LINE = 300
_CHUNK = 262_144
_PAUSE = 1.0
_BETWEEN_ROTATIONS = 10

log = logging.getLogger(__name__)


class Lookout:
    """The watch on one output; ``position`` is how far it has read, ``matches`` the number of reports."""

    def __init__(
        self,
        files: ProcessFiles,
        patterns: Sequence[str],
        position: int = 0,
        matches: int = 0,
        reported_at: datetime | None = None,
    ) -> None:
        self.position = position
        self.matches = matches
        self.lines: list[str] = []
        self.left_out = 0
        self.reported_at = reported_at
        self._files = files
        self._patterns = tuple(patterns)
        self._seen = -1

    @property
    def muted(self) -> bool:
        """Return whether it has reported too often, or has nothing to search for."""
        return not self._patterns or self.matches >= MOST_NOTICES

    @property
    def has_news(self) -> bool:
        """Return whether there is new output; called often, for many processes."""
        return self._files.size != self._seen and not self.muted

    def look(self, *, last: bool = False) -> None:
        """Search the new output; a line counts when it is complete, or nothing more can come."""
        if self.muted:
            return
        size = self._seen = self._files.size
        if size < self.position:  # the file was started again
            self.position = 0
        while self.position < size:
            raw = self._files.read(self.position, _CHUNK)
            whole = raw if last or (len(raw) == _CHUNK and b"\n" not in raw) else raw[: raw.rfind(b"\n") + 1]
            if not whole:
                return
            self.position += len(whole)
            self._collect_matches(whole)

    def is_due(self, now: datetime) -> bool:
        """Return whether there is something to report, and the rate limit allows it."""
        return bool(self.lines) and (self.reported_at is None or now - self.reported_at >= APART)

    def record_report(self, now: datetime) -> None:
        """Record that the matches were reported."""
        self.lines, self.left_out = [], 0
        self.matches += 1
        self.reported_at = now

    def _collect_matches(self, raw: bytes) -> None:
        for line in make_readable(raw).splitlines():
            if any(pattern in line for pattern in self._patterns):
                if len(self.lines) < _MOST_LINES:
                    self.lines.append(line[:_LONGEST_LINE])
                else:
                    self.left_out += 1


class Reporter(Protocol):
    """The sender of reports."""

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Queue a report to the session of a process, once per name."""

    def record_pending_answers(
        self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str
    ) -> None:
        """Record that a tool call is about to return the content of the reports with these names."""


def make_end_name(process: BackgroundProcess) -> str:
    """Return the name of the report of its end."""
    return f"{process.id}:end"


def make_match_name(process: BackgroundProcess, number: int) -> str:
    """Return the name of a report of watched lines."""
    return f"{process.id}:match:{number}"


def format_end_notice(process: BackgroundProcess, last_lines: str) -> str:
    """Return the report of its end."""
    by = ", by the user" if process.ended_by == "person" else ""
    return f"{process_label(process)} {describe_outcome(process)}{by}.{_format_section('Its last lines', last_lines)}"


def format_match_notice(process: BackgroundProcess, lines: Sequence[str], left_out: int, *, last: bool) -> str:
    """Return the report of watched lines."""
    more = f"\n({left_out} more matching lines omitted.)" if left_out else ""
    muted = "\nToo many matches: further lines of this process won't be reported." if last else ""
    section = _format_section("Lines", "\n".join(lines))
    return f"{process_label(process)} printed a line you watch for.{section}{more}{muted}"


def _format_section(heading: str, text: str) -> str:
    if not text.strip():
        return " It printed nothing." if heading != "Lines" else ""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f" {heading}:\n{fence}\n{text}\n{fence}"


class Watched:
    """A watched process; ``silent`` means that the system doesn't signal its end, so it must be polled."""

    def __init__(self, process: BackgroundProcess) -> None:
        self.process = process
        self.files = ProcessFiles(Path(process.files_folder))
        self.lookout = Lookout(self.files, process.patterns, process.scanned, process.matches, process.matched_at)
        self.ended = asyncio.Event()
        self.over = False
        self.ending = False
        self.silent = True
        self._handle: int | None = None

    @property
    def runs(self) -> bool:
        """Return whether it is alive."""
        return is_same_process(self.process.pid, self.process.started, self.process.machine)

    def listen(self, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` when it ends, immediately if it has."""
        with suppress(AttributeError, OSError):  # the system has no pidfd, or the process is gone
            self._handle = os.pidfd_open(self.process.pid)
            self.silent = False
            asyncio.get_running_loop().add_reader(self._handle, on_end)
        if not self.runs:
            on_end()

    def close(self) -> None:
        """Close the file descriptor, and reap the process if it was our child."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        if self.process.pid:
            with suppress(ChildProcessError):
                os.waitpid(self.process.pid, os.WNOHANG)


class Rounds:
    """The polling task of one worker; ``on_end`` is called for a process that ended without a signal.

    It pauses until ``needed`` says that there is something to poll.
    """

    def __init__(
        self,
        store: Store,
        watched: Mapping[str, Watched],
        on_end: Callable[[Watched], None],
        reporter: Reporter,
    ) -> None:
        self.left_behind = LeftBehind()
        self.needed = asyncio.Event()
        self._store = store
        self._watched = watched
        self._on_end = on_end
        self._reporter = reporter

    async def poll(self) -> None:
        """Poll until cancelled."""
        count = 0
        while True:
            await self.needed.wait()
            await asyncio.sleep(_PAUSE)
            count += 1
            try:
                await self._poll_once(rotate=count % _BETWEEN_ROTATIONS == 0)
            except (StoreError, OSError) as error:
                log.warning("can't read the output of background processes, will retry: %s", error)
            if not self._watched and not self.left_behind:
                self.needed.clear()

    async def _poll_once(self, *, rotate: bool) -> None:
        now = datetime.now(UTC)
        for watched in list(self._watched.values()):
            if watched.silent and not watched.runs:
                self._on_end(watched)
            lookout = watched.lookout
            if lookout.has_news:
                await asyncio.to_thread(lookout.look)
            if lookout.lines and lookout.is_due(now):
                await self._report_matches(watched, now)
            if rotate and watched.files.size >= ROTATE_AT:
                await self._rotate(watched)
        await self.left_behind.end()

    async def _rotate(self, watched: Watched) -> None:
        """Rotate an output, after searching it for watched lines."""
        await asyncio.to_thread(watched.lookout.look)
        await asyncio.to_thread(watched.files.rotate)
        watched.lookout.position = 0
        await self._store.write(lambda tx: change_process(tx, watched.process, scanned=0))

    async def _report_matches(self, watched: Watched, now: datetime) -> None:
        """Report matching lines and store the position in the same transaction, so that each is found once."""
        lookout = watched.lookout
        number, position = lookout.matches + 1, lookout.position
        text = format_found_lines(watched, last=number >= MOST_NOTICES)

        def work(tx: Transaction) -> None:
            changed = change_process(tx, watched.process, scanned=position, matches=number, matched_at=now)
            if changed is not None:
                self._reporter.report(tx, changed, make_match_name(changed, number), text)

        await self._store.write(work)
        lookout.record_report(now)


def format_found_lines(watched: Watched, *, last: bool) -> str:
    """Return the report of matching lines; ``last`` means that there will be no more."""
    return format_match_notice(watched.process, watched.lookout.lines, watched.lookout.left_out, last=last)
