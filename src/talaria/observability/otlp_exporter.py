"""Export finished turns to an OpenTelemetry collector in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.turn_listener import AfterCommit, TurnResult
from talaria.core.errors import ProviderError
from talaria.observability.otlp import OtlpSpan, build_spans, encode_spans
from talaria.observability.trace import read_turn

_PATH = "/v1/traces"
_REDIRECTED = 300
_RETRYABLE_STATUSES = {429, 502, 503, 504}
_TURNS_WAITING, _TURNS_AT_ONCE = 256, 32

# Post a body to a URL, once, and return the status and headers of the response; headers are in lower case.
HttpPost = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, Mapping[str, str]]]]

log = logging.getLogger(__name__)


class ExportRetryPolicy(Struct, frozen=True, kw_only=True):
    """Time-outs and attempts for a collector; a wait that it asks for is bounded too."""

    attempts: int = 4
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)
    answer: timedelta = timedelta(seconds=10)
    closing: timedelta = timedelta(seconds=3)


class FinishedTurn(Struct, frozen=True):
    """The exported part of a turn."""

    session: Session
    turn: Turn
    steps: Sequence[Step]


class TurnExporter:
    """A queue of finished turns for a collector; a full queue or an unresponsive collector loses turns, not time.

    `run_exporter` runs one. ``endpoint`` is the collector's URL, with or without ``/v1/traces``.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        post: HttpPost,
        patience: ExportRetryPolicy | None = None,
    ) -> None:
        base = endpoint.rstrip("/")
        self._url = base if base.endswith(_PATH) else base + _PATH
        self._headers = {**headers, "Content-Type": "application/json"}
        self._http_post = post
        self._patience = patience or ExportRetryPolicy()
        self._queue: asyncio.Queue[FinishedTurn] = asyncio.Queue(_TURNS_WAITING)
        self._open = True

    def finished(self, session: Session, turn: Turn, steps: Sequence[Step]) -> None:
        """Queue a turn; returns at once."""
        if not self._open:
            return
        try:
            self._queue.put_nowait(FinishedTurn(session, turn, steps))
        except asyncio.QueueFull:
            log.warning("telemetry: the collector is too slow; dropping the trace of turn %s", turn.id)

    async def serve(self) -> None:
        """Send queued turns until cancelled."""
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < _TURNS_AT_ONCE:
                batch.append(self._queue.get_nowait())
            try:
                await self._send(encode_spans(span for one in batch for span in _spans(one)))
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def close(self) -> None:
        """Accept nothing more, and wait briefly for the rest."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.closing.total_seconds()):
                await self._queue.join()

    async def _send(self, body: bytes) -> None:
        wait = self._patience.first_wait
        for attempt in range(1, self._patience.attempts + 1):
            problem, asked = await self._post(body)
            if asked is None or attempt == self._patience.attempts:
                break
            await asyncio.sleep(min(max(wait, asked), self._patience.longest_wait).total_seconds())
            wait *= 2
        if problem:
            log.warning("telemetry: dropping a trace: %s", problem)

    async def _post(self, body: bytes) -> tuple[str, timedelta | None]:
        """Return the error, if any, and the minimum wait if another attempt makes sense."""
        try:
            async with asyncio.timeout(self._patience.answer.total_seconds()):
                status, headers = await self._http_post(self._url, body, self._headers)
        except ValueError:
            return "the collector's URL or one of its headers is invalid", None
        except (ProviderError, TimeoutError) as error:
            return f"the collector doesn't answer ({type(error).__name__})", timedelta()
        if status < _REDIRECTED:
            return "", None
        retry_after = _retry_after(headers) if status in _RETRYABLE_STATUSES else None
        return f"the collector answered {status}", retry_after


@asynccontextmanager
async def run_exporter(
    endpoint: str, headers: Mapping[str, str], post: HttpPost, patience: ExportRetryPolicy | None = None
) -> AsyncIterator[TurnExporter]:
    """Run an exporter within the block; at its end queued turns have a few seconds to be sent."""
    exporter = TurnExporter(endpoint, headers, post, patience)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(exporter.serve())
        try:
            yield exporter
        finally:
            await exporter.close()
            serving.cancel()


def _spans(finished: FinishedTurn) -> list[OtlpSpan]:
    turn = finished.turn
    try:
        return build_spans(finished.session, read_turn(turn, finished.steps, turn.ended_at or turn.started_at))
    except msgspec.MsgspecError:
        log.warning("telemetry: can't read the steps of turn %s", turn.id)
        return []


def _retry_after(headers: Mapping[str, str]) -> timedelta:
    asked = headers.get("retry-after", "")
    return timedelta(seconds=int(asked)) if asked.isascii() and asked.isdecimal() and len(asked) < 6 else timedelta()


class TurnExportListener:
    """The turn listener that passes each finished turn of a session to an exporter; implements `TurnListener`."""

    def __init__(self, session: Session, exporter: TurnExporter) -> None:
        self._session = session
        self._exporter = exporter

    def turn_ended(self, tx: Transaction, result: TurnResult) -> AfterCommit | None:
        """Queue the turn for export after the commit."""
        for turn in tx.turns.find(self._session.id, limit=1):
            if turn.id == result.turn_id:
                return partial(self._exporter.finished, self._session, turn, tx.turns.steps(turn.id))
        return None
