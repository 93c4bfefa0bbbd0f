"""A standing goal: what is to be reached, how that is proved, what it may take, and how far it has come."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct, structs

from talaria.core.ids import TurnId
from talaria.core.messages import Usage
from talaria.core.senders import OWNER, UNKNOWN
from talaria.core.wording import counted

Status = Literal["active", "paused", "done"]
Verdict = Literal["done", "continue", "wait", "stop", "skipped", "failed", "inactive"]
JudgeFailure = Literal["", "unreadable", "unavailable"]

_MICRODOLLARS = 1_000_000


class Contract(Struct, frozen=True, omit_defaults=True):
    """When a goal is reached, and what holds on the way: ``verify`` is a command that has to end with 0."""

    verify: str = ""
    constraints: str = ""
    scope: str = ""
    stop_when: str = ""


class Allowance(Struct, frozen=True, omit_defaults=True):
    """What a goal may take before a person is asked; 0 is no limit, money is in millionths of a dollar."""

    turns: int = 20
    tokens: int = 0
    microdollars: int = 0
    seconds: int = 0


class Watched(Struct, frozen=True):
    """A process that is waited for; its start and its machine tell it from another one with the same number."""

    pid: int
    started: str
    machine: str


class Pending(Struct, frozen=True):
    """A turn that has ended and has not been judged yet."""

    turn: TurnId
    reply: str


class Parked(Struct, frozen=True):
    """A wait: ``until`` at the latest, or until a process is over; the next step comes behind ``turn``."""

    turn: TurnId
    until: datetime
    reason: str
    process: Watched | None = None


class Judged(Struct, frozen=True, omit_defaults=True):
    """The verdict on a turn; ``exit_code`` is that of the command which verifies, if one ran to its end.

    With a ``failure`` of the judge the verdict is ``continue``, but nobody knows whether the goal is reached.
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
        """The verdict as people read it."""
        return "not judged" if self.failure else self.verdict


class GoalState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The goal of one conversation.

    What it took is counted from ``since``, when it was set or last resumed; ``usage`` is what the conversation had used
    by then. ``vouched`` says that the owner of the agent set it, ``sender`` who did. ``untold`` is for the person to
    read next. ``failures`` counts failed turns in a row, ``judge_failures`` turns in a row that could not be judged and
    ``unreadable`` answers of the judge in a row that could not be read.
    """

    id: str
    goal: str
    set_at: datetime
    since: datetime
    usage: Usage
    contract: Contract = Contract()
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
    pending: Pending | None = None
    parked: Parked | None = None
    last: Judged | None = None
    untold: str = ""

    @property
    def max_turns(self) -> int:
        """How many turns it may take."""
        return self.allowance.turns

    @property
    def setter(self) -> str:
        """Who set the goal: its turns have that person's rights. Goals set by older versions name the owner only."""
        return self.sender or (OWNER if self.vouched else UNKNOWN)

    @property
    def account(self) -> str:
        """Where the money for it is counted in the ledger; a new one each time that it is resumed."""
        return f"goal:{self.id}:{self.resumes}"

    @property
    def progress(self) -> str:
        """Turns used, of how many."""
        return f"{self.turns_used} of {self.max_turns} turns" if self.max_turns else f"{self.turns_used} turns"

    def paused(self, reason: str) -> "GoalState":
        """Return the goal as it waits for a person."""
        return structs.replace(self, status="paused", paused_reason=reason, pending=None, parked=None)

    def resumed(self, now: datetime, usage: Usage) -> "GoalState":
        """Return the goal as it goes on, with nothing used yet."""
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
        """Return which part of the allowance is used up, in words, or nothing."""
        most = self.allowance
        tokens = tokens_of(usage) - tokens_of(self.usage)
        money = usage.cost_microdollars - self.usage.cost_microdollars
        if most.turns and self.turns_used >= most.turns:
            return f"its budget of {counted(most.turns, 'turn')} is used up"
        if most.tokens and tokens >= most.tokens:
            return f"its budget of {most.tokens:,} tokens is used up"
        if most.microdollars and money >= most.microdollars:
            return f"its budget of {in_dollars(most.microdollars)} is used up"
        if most.seconds and now - self.since >= timedelta(seconds=most.seconds):
            return f"its budget of {in_words(most.seconds)} is used up"
        return ""


def tokens_of(usage: Usage) -> int:
    """Return how many tokens went in and came out."""
    return usage.input_tokens + usage.output_tokens


def in_dollars(microdollars: int) -> str:
    """Return money as people write it."""
    return f"${microdollars / _MICRODOLLARS:,.2f}"


def in_words(seconds: float) -> str:
    """Return a length of time as people say it."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.0f} s"
