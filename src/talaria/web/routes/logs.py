"""Routes for looking inside: the log, and the checks of the doctor; owner only."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.http.routing import Reply, Route, make_json_reply
from talaria.observability.log_reader import LogEntry, LogFilter, read_log
from talaria.web.front_door import AGENT_OWNER, WebRequest

_TAG = "web"
_Position = Annotated[int, Meta(ge=-1, le=2**53)]


class LogQuery(Struct, frozen=True):
    """Which entries to show: the last ones, those after a position, or those before one; filters may be empty."""

    level: Literal["", "debug", "info", "warning", "error"] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    session: Annotated[str, Meta(max_length=64)] = ""
    after: _Position = -1
    before: _Position = -1
    limit: Annotated[int, Meta(ge=1, le=1000)] = 300


class LogView(Struct, frozen=True):
    """Entries of the log in order; ``start`` and ``end`` are the positions of the part that was searched."""

    entries: list[LogEntry]
    start: int
    end: int


class CheckFinding(Struct, frozen=True):
    """A finding of a check, with advice."""

    state: Literal["ok", "warning", "fault"]
    found: str
    repair: str


class CheckView(Struct, frozen=True):
    """A check of the doctor."""

    name: str
    state: Literal["ok", "warning", "fault"]
    findings: list[CheckFinding]


class DoctorView(Struct, frozen=True):
    """All checks, without a request to the model's provider."""

    checks: list[CheckView]


class InsideRoutes:
    """The log of this profile, and its checks; ``examine`` runs the checks and blocks."""

    def __init__(self, log_file: Path, examine: Callable[[], list[CheckView]]) -> None:
        self._log_file = log_file
        self._examine = examine

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/logs", handler=self._logs, summary="Read the log", scope=AGENT_OWNER,
                  asks=LogQuery, reply_type=LogView, tag=_TAG),
            Route(method="GET", path="/web/doctor", handler=self._doctor, summary="Run all checks", scope=AGENT_OWNER,
                  reply_type=DoctorView, tag=_TAG),
        )  # fmt: skip

    async def _logs(self, request: WebRequest) -> Reply:
        asked = request.asked(LogQuery)
        wanted = LogFilter(asked.level, asked.text, asked.session)
        page = await asyncio.to_thread(
            read_log, self._log_file, wanted, asked.limit, after=asked.after, before=asked.before
        )
        return make_json_reply(LogView(page.entries, page.start, page.end))

    async def _doctor(self, request: WebRequest) -> Reply:
        return make_json_reply(DoctorView(await asyncio.to_thread(self._examine)))
