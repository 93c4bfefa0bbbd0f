"""The heartbeat: a regular look at what is pending, which asks a model only where there is something to look at."""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.jobs import Job
from talaria.contracts.stores.outbox import OutboxItem
from talaria.core.errors import TalariaError
from talaria.schedule.due import begin_now, is_at_work
from talaria.schedule.keeping import HEARTBEAT, SCHEDULES, Rules, targets_of
from talaria.schedule.plan import Plan, Scheduled, write_plan
from talaria.schedule.times import Every, find_zone, write_schedule

FILE = "HEARTBEAT.md"
_KEY = "heartbeat"
_MOST_CHARACTERS = 20_000
_MOST_PENDING, _MOST_KNOWN = 20, 500
_LOOK_AGAIN = 60.0
# Headings, comments and what is ticked off ask for nothing.
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOTHING = re.compile(r"\s*+(?:#.*|[-*+]\s*(?:\[[xX]\].*)?|[-=_*\s]*)")
_PROMPT = (
    "This is a regular look at what is pending, not a person. See to what stands below, as far as it is time for it."
    " Reply with what your owner has to know now; if that is nothing, reply [SILENT] alone."
)

log = logging.getLogger(__name__)


class Beat(Struct, frozen=True):
    """How the heart beats: how often, within which hours of which zone, and where it reports."""

    every: timedelta
    begins: time
    ends: time
    rules: Rules
    target: str
    model: str = ""

    def is_awake(self, now: datetime) -> bool:
        """Tell whether a moment lies within the hours; the same hour twice means always."""
        shown = now.astimezone(find_zone(self.rules.zone)).time()
        if self.begins <= self.ends:
            return self.begins == self.ends or self.begins <= shown < self.ends
        return shown >= self.begins or shown < self.ends


class _Last(Struct, frozen=True):
    """When it beat last, and which deliveries had been given up then."""

    at: datetime
    known: tuple[int, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Last).decode


class Heartbeat:
    """Beats for the profile of a folder; ``beat`` is what the settings say now, ``None`` where it is off."""

    def __init__(self, store: Store, folder: Path, beat: Callable[[], Beat | None], clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._beat = beat
        self._clock = clock

    async def serve(self) -> None:
        """Beat until cancelled; whoever of several workers is first does it for all."""
        while True:
            try:
                pause = await self.look()
            except TalariaError as error:
                log.warning("the heartbeat waits: %s", error)
                pause = _LOOK_AGAIN
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Beat if it is time, and return for how many seconds there is nothing to do at most."""
        beat, now = self._beat(), self._clock.now()
        if beat is None or not beat.is_awake(now):
            return _LOOK_AGAIN
        asked = await asyncio.to_thread(read_file, self._folder)
        left = await self._store.write(lambda tx: _beat(tx, beat, asked, now))
        await self._store.hint(SCHEDULES)
        return min(max(left.total_seconds(), 1.0), _LOOK_AGAIN)


def read_file(folder: Path) -> str:
    """Return what HEARTBEAT.md asks for; empty where there is no such file, or nothing in it but headings."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8-sig", errors="replace")[:_MOST_CHARACTERS]
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("%s cannot be read: %s", folder / FILE, error)
        return ""
    text = _COMMENT.sub("", text).strip()
    return "" if all(_NOTHING.fullmatch(line) for line in text.splitlines()) else text


def _given_up(tx: Transaction) -> list[OutboxItem]:
    return [item for item in tx.outbox.find() if item.state == "failed"][-_MOST_KNOWN:]


def _beat(tx: Transaction, beat: Beat, asked: str, now: datetime) -> timedelta:
    """Begin a run if it is time and there is something to look at; return how long it is until the next time."""
    entry = tx.state.get(_KEY)
    last = _decode(entry.value) if entry else None
    # A last time that lies further ahead was set by a clock that was ahead.
    if last is not None and -beat.every < now - last.at < beat.every:
        return beat.every - (now - last.at)
    failed = _given_up(tx)
    beaten = _Last(now, tuple(item.id for item in failed))
    if not tx.state.replace(_KEY, _encode(beaten).decode(), version=entry.version if entry else 0):
        return beat.every  # another worker was quicker
    matters = [_matter(item) for item in failed if last is not None and item.id not in last.known]
    if asked or matters:
        job = _job(tx, beat, asked, matters[:_MOST_PENDING], now)
        if not is_at_work(tx, job.job):
            tx.jobs.put(job.job)
            begin_now(tx, job, now)
    return beat.every


def _matter(item: OutboxItem) -> str:
    return f"A message to {item.address.platform}:{item.address.chat_id} could not be delivered: {item.error}"


def _job(tx: Transaction, beat: Beat, asked: str, matters: list[str], now: datetime) -> Scheduled:
    parts = [_PROMPT]
    if asked:
        parts.append(f"{FILE} of your owner:\n\n{asked}")
    if matters:
        parts.append("Pending:\n" + "\n".join(f"- {one}" for one in matters))
    schedule = Every(int(beat.every.total_seconds()), now)
    plan = Plan(
        zone=beat.rules.zone,
        made_at=now,
        prompt="\n\n".join(parts),
        model=beat.model,
        deliver=targets_of(tx, (beat.target,), beat.rules.networks),
    )
    job = Job(id=HEARTBEAT, name="Heartbeat", schedule=write_schedule(schedule), payload=write_plan(plan))
    return Scheduled(job, plan, schedule)
