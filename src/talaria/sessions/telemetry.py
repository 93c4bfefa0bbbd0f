"""Send finished turns to an OpenTelemetry collector, behind the back of the conversation."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import ClassVar

import aiohttp
import msgspec
from msgspec import Struct

from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.core.ids import TurnId
from talaria.sessions.otlp import OtlpSpan, encode_spans, spans_of
from talaria.sessions.trace import read_turn

_PATH = "/v1/traces"
_REDIRECTED = 300
_TRY_AGAIN = {429, 502, 503, 504}
_TURNS_WAITING, _TURNS_AT_ONCE = 256, 32

log = logging.getLogger(__name__)


class Patience(Struct, frozen=True, kw_only=True):
    """How long to wait for a collector, and how often to try; a wait that it asks for is bounded too."""

    attempts: int = 4
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)
    answer: timedelta = timedelta(seconds=10)
    closing: timedelta = timedelta(seconds=3)


class FinishedTurn(Struct, frozen=True):
    """What is exported of a turn."""

    session: Session
    turn: Turn
    steps: Sequence[Step]


class TurnExporter:
    """A queue of finished turns on their way to a collector; a full queue and a deaf collector lose turns, not time.

    `exporting` runs one. ``endpoint`` is the collector's address, with or without ``/v1/traces``.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        http: aiohttp.ClientSession,
        patience: Patience | None = None,
    ) -> None:
        base = endpoint.rstrip("/")
        self._url = base if base.endswith(_PATH) else base + _PATH
        self._headers = {**headers, "Content-Type": "application/json"}
        self._http = http
        self._patience = patience or Patience()
        self._waiting: asyncio.Queue[FinishedTurn] = asyncio.Queue(_TURNS_WAITING)
        self._open = True

    def finished(self, session: Session, turn: Turn, steps: Sequence[Step]) -> None:
        """Hand over a turn; returns at once, whatever becomes of it."""
        if not self._open:
            return
        try:
            self._waiting.put_nowait(FinishedTurn(session, turn, steps))
        except asyncio.QueueFull:
            log.warning("telemetry: too many turns wait for the collector; the trace of turn %s is lost", turn.id)

    async def serve(self) -> None:
        """Send what is handed over until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and len(batch) < _TURNS_AT_ONCE:
                batch.append(self._waiting.get_nowait())
            try:
                await self._send(encode_spans(span for one in batch for span in _spans(one)))
            finally:
                for _ in batch:
                    self._waiting.task_done()

    async def close(self) -> None:
        """Take nothing more, and wait a little for what is on its way."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.closing.total_seconds()):
                await self._waiting.join()

    async def _send(self, body: bytes) -> None:
        wait = self._patience.first_wait
        for attempt in range(1, self._patience.attempts + 1):
            trouble, asked = await self._post(body)
            if asked is None or attempt == self._patience.attempts:
                break
            await asyncio.sleep(min(max(wait, asked), self._patience.longest_wait).total_seconds())
            wait *= 2
        if trouble:
            log.warning("telemetry: a trace is lost: %s", trouble)

    async def _post(self, body: bytes) -> tuple[str, timedelta | None]:
        """Return what went wrong, or nothing, and how long to wait at least if another attempt makes sense."""
        timeout = aiohttp.ClientTimeout(total=self._patience.answer.total_seconds())
        try:
            async with self._http.post(
                self._url, data=body, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status < _REDIRECTED:
                    return "", None
                again = _retry_after(answer.headers) if answer.status in _TRY_AGAIN else None
                return f"the collector answered {answer.status}", again
        except ValueError:  # how aiohttp refuses an address or a header
            return "the address of the collector or one of its headers cannot be used", None
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"the collector does not answer ({type(error).__name__})", timedelta()


@asynccontextmanager
async def exporting(
    endpoint: str, headers: Mapping[str, str], patience: Patience | None = None
) -> AsyncIterator[TurnExporter]:
    """Run an exporter within the block; at its end what waits has a few seconds to leave."""
    async with aiohttp.ClientSession(trust_env=True, cookie_jar=aiohttp.DummyCookieJar()) as http:
        exporter = TurnExporter(endpoint, headers, http, patience)
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
        return spans_of(finished.session, read_turn(turn, finished.steps, turn.ended_at or turn.started_at))
    except msgspec.MsgspecError:
        log.warning("telemetry: the steps of turn %s cannot be read", turn.id)
        return []


def _retry_after(headers: Mapping[str, str]) -> timedelta:
    asked = headers.get("Retry-After", "")
    return timedelta(seconds=int(asked)) if asked.isascii() and asked.isdecimal() and len(asked) < 6 else timedelta()


class TurnExports:
    """Implements `Follower`: hands each finished turn of a conversation to an exporter."""

    resumable: ClassVar = False

    def __init__(self, store: Store, session: Session, exporter: TurnExporter) -> None:
        self._store = store
        self._session = session
        self._exporter = exporter
        self._ended: TurnId | None = None

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Remember which turn it was."""
        self._ended = ending.turn_id

    async def follow_up(self) -> bool:
        """Hand the turn over."""
        ended, self._ended = self._ended, None

        def last(tx: Transaction) -> list[tuple[Turn, list[Step]]]:
            turns = tx.turns.find(self._session.id, limit=2)
            return [(turn, tx.turns.steps(turn.id)) for turn in turns if turn.id == ended]

        for turn, steps in await self._store.read(last):
            self._exporter.finished(self._session, turn, steps)
        return False
