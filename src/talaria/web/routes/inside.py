"""Routes for looking inside: the trace of turns, and for the owner the log and the doctor's checks."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import TurnState
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.observability.log_reader import LogEntry, LogFilter, read_log
from talaria.observability.trace import ModelSpan, NumberedTurn, PrefixBreak, ToolSpan, read_trace
from talaria.web.front_door import AGENT_OWNER, USER, WebCaller, WebRequest
from talaria.web.session_views import require_session

_TAG = "web"
_Position = Annotated[int, Meta(ge=-1, le=2**53)]
_MOST_TURNS = 100


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
            Route(method="GET", path="/web/logs", handler=self._show_logs, summary="Read the log", scope=AGENT_OWNER,
                  asks=LogQuery, reply_type=LogView, tag=_TAG),
            Route(method="GET", path="/web/doctor", handler=self._run_doctor, summary="Run all checks",
                  scope=AGENT_OWNER, reply_type=DoctorView, tag=_TAG),
        )  # fmt: skip

    async def _show_logs(self, request: WebRequest) -> Reply:
        asked = request.parse_query(LogQuery)
        log_filter = LogFilter(asked.level, asked.text, asked.session)
        page = await asyncio.to_thread(
            read_log, self._log_file, log_filter, asked.limit, after=asked.after, before=asked.before
        )
        return make_json_reply(LogView(page.entries, page.start, page.end))

    async def _run_doctor(self, request: WebRequest) -> Reply:
        return make_json_reply(DoctorView(await asyncio.to_thread(self._examine)))


class TraceQuery(Struct, frozen=True):
    """The number of a turn in its conversation, or its id; the last one by default."""

    turn: Annotated[str, Meta(max_length=64)] = ""


class TurnSummary(Struct, frozen=True):
    """A turn of the conversation, to choose from."""

    number: int
    id: str
    state: TurnState
    started_at: datetime


class TurnTraceView(Struct, frozen=True, kw_only=True):
    """A turn with its calls in order; a running one ends now."""

    number: int
    id: str
    state: TurnState
    error: str
    started_at: datetime
    ended_at: datetime
    spans: tuple[ModelSpan | ToolSpan, ...]
    breaks: tuple[PrefixBreak, ...]


class TraceView(Struct, frozen=True):
    """The latest turns of a conversation, newest first, and one of them; none if nothing has run."""

    session_id: str
    title: str
    turns: list[TurnSummary]
    turn: TurnTraceView | None


class TraceRoutes:
    """Traces of the conversations that a person may see."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/sessions/{session_id}/trace", handler=self._show,
                  summary="Show the calls of a turn over time", scope=USER, asks=TraceQuery, reply_type=TraceView,
                  tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        name, asked, caller = request.parts["session_id"], request.parse_query(TraceQuery), request.caller
        return make_json_reply(await self._store.read(lambda tx: _read_view(tx, name, asked.turn, caller)))


def _read_view(tx: Transaction, name: str, turn: str, caller: WebCaller) -> TraceView:
    session = require_session(tx, name, caller)
    found = list(enumerate(tx.turns.find(session.id), 1))[-_MOST_TURNS:]
    turns = [TurnSummary(number, one.id, one.state, one.started_at) for number, one in reversed(found)]
    if not turns:
        return TraceView(session.id, session.title, [], None)
    trace = read_trace(tx, session, datetime.now(UTC), turn=turn or None, last=1)
    return TraceView(session.id, session.title, turns, _to_view(trace.turns[-1]))


def _to_view(numbered: NumberedTurn) -> TurnTraceView:
    trace = numbered.trace
    return TurnTraceView(
        number=numbered.number,
        id=trace.turn.id,
        state=trace.turn.state,
        error=trace.turn.error,
        started_at=trace.turn.started_at,
        ended_at=trace.ended_at,
        spans=trace.spans,
        breaks=numbered.breaks,
    )
