"""State of a goal: its contract, allowance, progress and last verdict."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct, structs

from talaria.core.formatting import pluralize
from talaria.core.ids import TurnId
from talaria.core.messages import Usage
from talaria.core.senders import OWNER, UNKNOWN

Status = Literal["active", "paused", "done"]
Verdict = Literal["done", "continue", "wait", "stop", "skipped", "failed", "inactive"]
JudgeFailure = Literal["", "unreadable", "unavailable"]

_MICRODOLLARS = 1_000_000


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

    def paused(self, reason: str) -> "GoalState":
        """Return the goal in the paused state, in which it needs a person."""
        return structs.replace(self, status="paused", paused_reason=reason, pending=None, parked=None)

    def resumed(self, now: datetime, usage: Usage) -> "GoalState":
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

    def used_up(self, now: datetime, usage: Usage) -> str:
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
