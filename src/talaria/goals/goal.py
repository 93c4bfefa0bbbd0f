"""Goals: their state as stored, the verdicts on their turns, and the conditions that they wait for."""

import asyncio
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, structs

from talaria.contracts.clock import Clock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import Cap
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.formatting import pluralize
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import OWNER, UNKNOWN, Usage
from talaria.core.os_processes import is_running, is_same_process, machine_id, read_start_time

Status = Literal["active", "paused", "done"]
Verdict = Literal["done", "continue", "wait", "stop", "skipped", "failed", "inactive"]
JudgeFailure = Literal["", "unreadable", "unavailable"]
_MICRODOLLARS = 1_000_000
LONGEST_WAIT = 86_400
_DEFAULT_WAIT = 60
_MAX_ANSWER = 20_000
_MAX_TRIES = 200
_REASON_LENGTH = 500
_DONE_WORDS = {"true", "yes", "y", "1", "done", "complete", "completed", "achieved", "reached", "finished"}
_CONTINUE_WORDS = {"continue", "false", "no", "n", "0", "not done", "not yet", "incomplete", "not_done"}
_OTHER_VERDICTS: Mapping[str, Verdict] = {"wait": "wait", "stop": "stop"}
_CLOCK_INTERVAL = 30.0
_POLL_INTERVAL = 0.5


class GoalContract(Struct, frozen=True, omit_defaults=True):
    """Contract of a goal: conditions for success and limits; ``verify`` is a command that must exit with 0."""

    verify: str = ""
    constraints: str = ""
    scope: str = ""
    stop_when: str = ""


class Allowance(Struct, frozen=True, omit_defaults=True):
    """Limits of a goal before a person is asked; 0 means no limit, money is in microdollars."""

    turns: int = 20
    tokens: int = 0
    microdollars: int = 0
    seconds: int = 0


class WatchedProcess(Struct, frozen=True):
    """A process to wait for, identified by pid, start time and machine because pids are reused."""

    pid: int
    started: str
    machine: str


class PendingTurn(Struct, frozen=True):
    """A turn that has ended and has not been judged yet."""

    turn: TurnId
    reply: str


class Waiting(Struct, frozen=True):
    """A wait until a process ends, but no longer than ``until``; the next step follows ``turn``."""

    turn: TurnId
    until: datetime
    reason: str
    process: WatchedProcess | None = None


class JudgedTurn(Struct, frozen=True, omit_defaults=True):
    """The verdict on a turn; ``exit_code`` is that of the verify command, if it ran to its end.

    With a ``failure`` of the judge the verdict is ``continue``, but whether the goal is reached is unknown.
    """

    at: datetime
    goal: str
    turn: str
    verdict: Verdict
    reason: str
    exit_code: int | None = None
    failure: JudgeFailure = ""

    @property
    def label(self) -> str:
        """The verdict as shown to people."""
        return "not judged" if self.failure else self.verdict


class GoalState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The goal of one session.

    Consumption is counted from ``since``, when the goal was set or last resumed; ``usage`` is the session's usage at
    that time. ``vouched`` is set if the agent's owner set the goal, ``sender`` is the person who did. ``untold`` is a
    notice not shown yet. ``failures`` counts failed turns in a row, ``judge_failures`` turns in a row that could not be
    judged and ``unreadable`` judge answers in a row that could not be parsed.
    """

    id: str
    goal: str
    set_at: datetime
    since: datetime
    usage: Usage
    contract: GoalContract = GoalContract()
    subgoals: tuple[str, ...] = ()
    status: Status = "active"
    allowance: Allowance = Allowance()
    turns_used: int = 0
    paused_reason: str = ""
    resumes: int = 0
    failures: int = 0
    judge_failures: int = 0
    unreadable: int = 0
    vouched: bool = True
    sender: str = UNKNOWN
    pending: PendingTurn | None = None
    parked: Waiting | None = None
    last: JudgedTurn | None = None
    untold: str = ""

    @property
    def max_turns(self) -> int:
        """Maximum number of turns."""
        return self.allowance.turns

    @property
    def setter(self) -> str:
        """The person who set the goal, whose rights its turns have.

        Goals stored by older versions only record whether that was the owner.
        """
        return self.sender or (OWNER if self.vouched else UNKNOWN)

    @property
    def account(self) -> str:
        """Ledger account of the goal; a new one after each resume."""
        return f"goal:{self.id}:{self.resumes}"

    @property
    def progress(self) -> str:
        """Turns used, and the maximum if there is one."""
        return f"{self.turns_used} of {self.max_turns} turns" if self.max_turns else f"{self.turns_used} turns"

    def pause(self, reason: str) -> "GoalState":
        """Return the goal in the paused state, in which it needs a person."""
        return structs.replace(self, status="paused", paused_reason=reason, pending=None, parked=None)

    def resume(self, now: datetime, usage: Usage) -> "GoalState":
        """Return the goal in the active state, with its counters reset."""
        return structs.replace(
            self,
            status="active",
            paused_reason="",
            turns_used=0,
            failures=0,
            judge_failures=0,
            unreadable=0,
            since=now,
            usage=usage,
            resumes=self.resumes + 1,
            pending=None,
            parked=None,
        )

    def describe_used_up(self, now: datetime, usage: Usage) -> str:
        """Return the part of the allowance that is used up as text, or an empty string."""
        most = self.allowance
        tokens = count_tokens(usage) - count_tokens(self.usage)
        money = usage.cost_microdollars - self.usage.cost_microdollars
        if most.turns and self.turns_used >= most.turns:
            return f"its budget of {pluralize(most.turns, 'turn')} is used up"
        if most.tokens and tokens >= most.tokens:
            return f"its budget of {most.tokens:,} tokens is used up"
        if most.microdollars and money >= most.microdollars:
            return f"its budget of {format_dollars(most.microdollars)} is used up"
        if most.seconds and now - self.since >= timedelta(seconds=most.seconds):
            return f"its budget of {format_duration(most.seconds)} is used up"
        return ""


def count_tokens(usage: Usage) -> int:
    """Return the sum of input and output tokens."""
    return usage.input_tokens + usage.output_tokens


def format_dollars(microdollars: int) -> str:
    """Format an amount of money in dollars."""
    return f"${microdollars / _MICRODOLLARS:,.2f}"


def format_duration(seconds: float) -> str:
    """Format a duration with its largest fitting unit."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.0f} s"


class Opinion(Struct, frozen=True, kw_only=True):
    """Opinion of the judge about a turn.

    ``exit_code`` is that of the verify command; ``wait_seconds`` and ``wait_pid`` limit a wait. ``failure`` is set if
    there was no verdict, with the cause. ``usage`` is that of the judging model, whose
    cost is unknown if it has no price.
    """

    verdict: Verdict
    reason: str
    wait_seconds: float = 0
    wait_pid: int = 0
    exit_code: int | None = None
    failure: JudgeFailure = ""
    usage: Usage = Usage()
    has_price: bool = True


def read_verdict(answer: str) -> Opinion | None:
    """Return the last opinion in an answer, or ``None`` if none can be parsed."""
    found: Opinion | None = None
    for value in _iterate_objects(answer[:_MAX_ANSWER]):
        found = _parse_opinion(value) or found
    return found


def identify_process(pid: int) -> WatchedProcess | None:
    """Return the identity of a process to wait for, or ``None`` if it does not run."""
    if pid <= 1 or not is_running(pid):
        return None
    return WatchedProcess(pid, read_start_time(pid), machine_id())


def resolve_process(opinion: Opinion) -> tuple[Opinion, WatchedProcess | None]:
    """Return an opinion with the process that it waits for; if it has ended, there is no wait."""
    if opinion.verdict != "wait" or not opinion.wait_pid:
        return opinion, None
    watched = identify_process(opinion.wait_pid)
    return opinion if watched else structs.replace(opinion, wait_seconds=0), watched


async def wait_until_over(parked: Waiting, clock: Clock) -> None:
    """Wait until the time has come or the process has ended.

    A process of another machine is treated as ended.
    """
    left = (parked.until - clock.now()).total_seconds()
    while left > 0:
        # In slices, because the clock may be changed or the machine suspended.
        try:
            async with asyncio.timeout(min(left, _CLOCK_INTERVAL)):
                await _wait_for_exit(parked.process)
                return
        except TimeoutError:
            left = (parked.until - clock.now()).total_seconds()


GOAL: SessionValue[GoalState | None] = SessionValue("goal", GoalState | None)  # ``goal:<session id>``


class StoredGoal(Struct, frozen=True):
    """A goal as it was read, with the version that detects a concurrent change."""

    state: GoalState | None
    version: int


def read_goal(tx: Transaction, session_id: SessionId) -> StoredGoal:
    """Return the goal of a session, if it has one."""
    stored = GOAL.read(tx, session_id)
    return StoredGoal(stored.value, stored.version)


def read_goal_caps(tx: Transaction, session_id: SessionId) -> Sequence[Cap]:
    """Return the spending limit of the active goal, as a cap for the ledger."""
    state = read_goal(tx, session_id).state
    if state is None or state.status != "active" or not state.allowance.microdollars:
        return ()
    return (Cap(state.account, state.allowance.microdollars),)


class GoalRecorder:
    """Turn listener that records how turns end, for a surface that does not stay open; implements `TurnListener`.

    A surface that stays open drives the goal from there.
    """

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> None:
        """Apply the end of a turn to the goal, in its transaction."""
        if read_goal(tx, ending.session_id).state is None:
            return
        from talaria.goals.goal_store import record_turn_end  # noqa: PLC0415 (loaded for a session with a goal)

        record_turn_end(tx, ending, datetime.now(UTC))


def _iterate_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text, in order."""
    from json import JSONDecoder  # noqa: PLC0415 (loaded when there is a goal; most sessions have none)

    decoder = JSONDecoder()
    start = text.find("{")
    for _ in range(_MAX_TRIES):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = text.find("{", end)


def _parse_opinion(value: Mapping[str, Any]) -> Opinion | None:
    verdict = _parse_verdict(value)
    if verdict is None:
        return None
    raw = value.get("reason")
    reason = " ".join(raw.split())[:_REASON_LENGTH] if isinstance(raw, str) else ""
    if verdict != "wait":
        return Opinion(verdict=verdict, reason=reason or "The judge gave no reason.")
    pid = round(_parse_number(value.get("wait_pid"), 2**31))
    seconds = _parse_number(value.get("wait_seconds"), LONGEST_WAIT) or (LONGEST_WAIT if pid else _DEFAULT_WAIT)
    return Opinion(
        verdict="wait", reason=reason or "Something else has to finish first.", wait_seconds=seconds, wait_pid=pid
    )


def _parse_verdict(value: Mapping[str, Any]) -> Verdict | None:
    word = _normalize_word(value.get("verdict")) or _normalize_word(value.get("done"))
    if word in _DONE_WORDS:
        return "done"
    if word in _OTHER_VERDICTS:
        return _OTHER_VERDICTS[word]
    return "continue" if word in _CONTINUE_WORDS or (word and "verdict" not in value) else None


def _normalize_word(value: object) -> str:
    if isinstance(value, bool | int | float):
        return "true" if value else "false"
    return " ".join(value.lower().split()).strip(" .!") if isinstance(value, str) else ""


def _parse_number(value: object, most: float) -> float:
    """Parse a positive number, also from text, limited to ``most``; 0 if it is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return min(number, most) if math.isfinite(number) and number > 0 else 0.0


async def _wait_for_exit(watched: WatchedProcess | None) -> None:
    """Wait until a process has ended; without a process, forever."""
    if watched is None:
        await asyncio.Event().wait()
        return
    try:
        handle = os.pidfd_open(watched.pid)
    except (AttributeError, OSError):
        await _poll_exit(watched)
        return
    try:
        if _is_same(watched):
            await _wait_readable(handle)
    finally:
        os.close(handle)


async def _wait_readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)


async def _poll_exit(watched: WatchedProcess) -> None:
    while _is_same(watched):  # noqa: ASYNC110 (only on systems without pidfd)
        await asyncio.sleep(_POLL_INTERVAL)


def _is_same(watched: WatchedProcess) -> bool:
    return is_same_process(watched.pid, watched.started, watched.machine)
