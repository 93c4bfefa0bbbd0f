"""Scheduled jobs as tools and commands see them, and the rows of jobs and their runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import JobId, SessionId

RUNS_KEPT = 1_000
RunState = Literal["running", "done", "failed", "missed"]
CRON = "cron"  # the source of sessions started by jobs
ORIGIN, HOME, NOWHERE = "origin", "home", "nowhere"
CatchUp = Literal["once", "never"]


class Job(Struct, frozen=True, kw_only=True):
    """A scheduled job."""

    id: JobId
    name: str
    schedule: str
    payload: str
    owner: str = ""
    paused: bool = False
    next_at: datetime | None = None


class JobRun(Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job_id: JobId
    due_at: datetime
    state: RunState
    started_at: datetime
    ended_at: datetime | None = None
    session_id: SessionId | None = None
    output: str = ""


class Jobs(Protocol):
    """The jobs of this store; each due run starts once, whatever the number of workers."""

    def put(self, job: Job) -> None:
        """Create a job or replace it."""

    def find(self, *, due: bool = False) -> list[Job]:
        """Return every job by name, or only those that are due, longest overdue first."""

    def delete(self, job_id: JobId) -> bool:
        """Remove a job and its runs."""

    def begin_run(self, job: Job, *, next_at: datetime | None) -> JobRun | None:
        """Start the due run of a job and set its next time.

        Of several workers that saw the same job one gets the run, the others ``None``.
        """

    def end_run(self, run: JobRun) -> None:
        """Record how a run ended; only the latest `RUNS_KEPT` of each job are stored."""

    def runs(self, job_id: JobId, limit: int = 20) -> list[JobRun]:
        """Return the latest runs, newest first."""


class JobRequest(Struct, frozen=True, kw_only=True):
    """A job to create or change; ``None`` keeps a value, or uses its default.

    ``when`` is text like ``every 2h``. ``script`` is a shell command whose output the agent gets with the prompt;
    without a prompt the script is the whole job and no model is called. ``deliver`` are targets: ``origin``, ``home``,
    ``nowhere``, or for example ``telegram:Family``. ``times`` is the number of runs, 0 for no limit; ``dollars`` is the
    monthly spending cap.
    """

    when: str | None = None
    prompt: str | None = None
    name: str | None = None
    skills: tuple[str, ...] | None = None
    model: str | None = None
    folder: str | None = None
    script: str | None = None
    times: int | None = None
    deliver: tuple[str, ...] | None = None
    zone: str | None = None
    catch_up: CatchUp | None = None
    dollars: float | None = None
    paused: bool | None = None


class JobRequester(Struct, frozen=True, kw_only=True):
    """The requester of a job: person, audience, session and chat; ``key`` identifies the call.

    The same key creates the same job, not a second one. ``everyone`` lets the owner of the agent manage the jobs of
    others, too.
    """

    owner: str = ""
    audience: str = ""
    session_id: SessionId | None = None
    address: Address | None = None
    key: str = ""
    everyone: bool = False


class JobView(Struct, frozen=True, kw_only=True):
    """A job for display; ``remarks`` are for the person who has just changed it."""

    id: JobId
    name: str
    schedule: str
    zone: str
    state: Literal["waiting", "paused", "over"]
    next_at: datetime | None
    next_told: str
    prompt: str
    script: str
    skills: tuple[str, ...]
    model: str
    folder: str
    deliver: tuple[str, ...]
    times_left: int | None
    catch_up: CatchUp
    dollars: float
    owner: str
    made_at: datetime
    remarks: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """Return the facts about a job by label."""
        values = {
            "when": f"{self.schedule} ({self.zone})",
            "next": self.next_told or self.state,
            "prompt": self.prompt,
            "script": self.script,
            "skills": ", ".join(self.skills),
            "model": self.model,
            "folder": self.folder,
            "reports to": ", ".join(self.deliver),
            "runs left": "" if self.times_left is None else str(self.times_left),
            "catch up": self.catch_up,
            "dollars": f"{self.dollars:g}" if self.dollars else "",
        }
        return {name: value for name, value in values.items() if value}


class RunView(Struct, frozen=True, kw_only=True):
    """One run of a job and its outcome."""

    due_at: datetime
    due_told: str
    state: RunState
    started_at: datetime
    ended_at: datetime | None
    session_id: SessionId | None
    output: str


class JobPreview(Struct, frozen=True, kw_only=True):
    """Schedule and prompt in a text, with the next runs, also as text in the time zone."""

    when: str
    prompt: str
    schedule: str
    zone: str
    next: tuple[datetime, ...]
    next_told: tuple[str, ...]


class JobService(Protocol):
    """The jobs of a requester; text names one by its id, its name, or a part of either.

    Raises `Refused` for invalid requests, `NotFound` and `Ambiguous` for text that names no job or several.
    """

    async def add(self, request: JobRequest, asker: JobRequester) -> JobView:
        """Create a job; without a ``when``, its prompt must start with a time."""

    def preview(self, text: str, zone: str = "") -> JobPreview:
        """Return the time at the beginning of a text with its next runs, and the rest of the text."""

    async def find(self, reference: str, asker: JobRequester) -> Sequence[JobView]:
        """Return the named job, or all jobs for empty text."""

    async def change(self, reference: str, request: JobRequest, asker: JobRequester) -> JobView:
        """Change the given values."""

    async def remove(self, reference: str, asker: JobRequester) -> JobView:
        """Remove a job with its history."""

    async def run(self, reference: str, asker: JobRequester) -> JobView:
        """Run it now, regardless of its schedule."""

    async def history(self, reference: str, asker: JobRequester, limit: int = 10) -> Sequence[RunView]:
        """Return its latest runs, newest first."""
