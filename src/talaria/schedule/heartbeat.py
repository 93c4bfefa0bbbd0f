"""The heartbeat: a regular check of pending matters, which calls a model only if there are any."""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from pathlib import Path

from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.jobs import Job
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxItem
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.errors import TalariaError
from talaria.schedule.due_runs import has_unfinished_run, start_job_now
from talaria.schedule.job_store import HEARTBEAT, JobRules, JobSpec, ScheduledJob, resolve_targets, write_plan
from talaria.schedule.recurrence import Every, find_zone, write_schedule

FILE = "HEARTBEAT.md"
_MAX_CHARACTERS = 20_000
_MAX_PENDING, _MAX_KNOWN = 20, 500
_POLL_INTERVAL = 60.0
# Headings, comments and ticked items ask for nothing.
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_BLANK_LINE = re.compile(r"\s*+(?:#.*|[-*+]\s*(?:\[[xX]\].*)?|[-=_*\s]*)")
_PROMPT = (
    "This is a regular check of pending matters, not a message from a person. Handle what is listed below, if "
    "it is time for it. Reply with what your owner needs to know now; if there is nothing, reply only [SILENT]."
)

log = logging.getLogger(__name__)


class HeartbeatPlan(Struct, frozen=True):
    """The plan of the heartbeat: interval, active hours and zone, and report targets."""

    every: timedelta
    begins: time
    ends: time
    rules: JobRules
    target: str
    model: str = ""

    def is_awake(self, now: datetime) -> bool:
        """Return whether a time is within the active hours; equal hours mean always."""
        shown = now.astimezone(find_zone(self.rules.zone)).time()
        if self.begins <= self.ends:
            return self.begins == self.ends or self.begins <= shown < self.ends
        return shown >= self.begins or shown < self.ends


class _LastBeat(Struct, frozen=True):
    """The time of the last heartbeat, and the failed deliveries known then."""

    at: datetime
    known: tuple[int, ...] = ()


LAST_HEARTBEAT = NamedValue("last_heartbeat", _LastBeat)


class HeartbeatWorker:
    """Runs the heartbeat of a profile; ``beat`` returns the current plan, ``None`` if it is off."""

    def __init__(self, store: Store, folder: Path, beat: Callable[[], HeartbeatPlan | None], clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._beat = beat
        self._clock = clock

    async def serve(self) -> None:
        """Run heartbeats until cancelled; the first of several workers does it for all."""
        while True:
            try:
                pause = await self.look()
            except TalariaError as error:
                log.warning("heartbeat not run, will retry: %s", error)
                pause = _POLL_INTERVAL
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Run a heartbeat if it is time, and return the seconds until the next check."""
        beat, now = self._beat(), self._clock.now()
        if beat is None or not beat.is_awake(now):
            return _POLL_INTERVAL
        instructions = await asyncio.to_thread(read_heartbeat_file, self._folder)
        left = await self._store.write(lambda tx: _beat(tx, beat, instructions, now))
        return min(max(left.total_seconds(), 1.0), _POLL_INTERVAL)


def read_heartbeat_file(folder: Path) -> str:
    """Return the content of HEARTBEAT.md; empty if there is no file, or only headings in it."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8-sig", errors="replace")[:_MAX_CHARACTERS]
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("can't read %s: %s", folder / FILE, error)
        return ""
    text = _COMMENT.sub("", text).strip()
    return "" if all(_BLANK_LINE.fullmatch(line) for line in text.splitlines()) else text


def _list_failed(tx: Transaction) -> list[OutboxItem]:
    return [item for item in tx.outbox.find() if item.state == "failed"][-_MAX_KNOWN:]


def _beat(tx: Transaction, beat: HeartbeatPlan, instructions: str, now: datetime) -> timedelta:
    """Start a run if it is time and there is something to check; return the time until the next one."""
    stored = LAST_HEARTBEAT.read(tx, SINGLE)
    last = stored.value
    # A last time further ahead was set by a clock that was ahead.
    if last is not None and -beat.every < now - last.at < beat.every:
        return beat.every - (now - last.at)
    failed = _list_failed(tx)
    new_state = _LastBeat(now, tuple(item.id for item in failed))
    if not LAST_HEARTBEAT.replace(tx, SINGLE, new_state, version=stored.version):
        return beat.every  # another worker was faster
    failures = [_describe_failure(item) for item in failed if last is not None and item.id not in last.known]
    if instructions or failures:
        job = _build_job(tx, beat, instructions, failures[:_MAX_PENDING], now)
        if not has_unfinished_run(tx, job.job):
            tx.jobs.put(job.job)
            start_job_now(tx, job, now)
    return beat.every


def _describe_failure(item: OutboxItem) -> str:
    return f"A message to {item.address.platform}:{item.address.chat_id} couldn't be delivered: {item.error}"


def _build_job(
    tx: Transaction, beat: HeartbeatPlan, instructions: str, failures: list[str], now: datetime
) -> ScheduledJob:
    parts = [_PROMPT]
    if instructions:
        parts.append(f"Your owner's {FILE}:\n\n{instructions}")
    if failures:
        parts.append("Pending:\n" + "\n".join(f"- {one}" for one in failures))
    schedule = Every(int(beat.every.total_seconds()), now)
    plan = JobSpec(
        zone=beat.rules.zone,
        made_at=now,
        prompt="\n\n".join(parts),
        model=beat.model,
        deliver=resolve_targets(tx, (beat.target,), beat.rules.networks),
    )
    job = Job(id=HEARTBEAT, name="HeartbeatWorker", schedule=write_schedule(schedule), payload=write_plan(plan))
    return ScheduledJob(job, plan, schedule)
