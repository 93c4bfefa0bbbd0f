"""Scheduled jobs as a tool or a command sees them: asked for in words, kept and run by others."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.stores.jobs import RunState
from talaria.core.addresses import Address
from talaria.core.ids import JobId, SessionId

CRON = "cron"  # the source of conversations that jobs have begun
ORIGIN, HOME, NOWHERE = "origin", "home", "nowhere"

CatchUp = Literal["once", "never"]


class JobWish(Struct, frozen=True, kw_only=True):
    """What a job is to be; ``None`` leaves a value as it is, or to its default.

    ``when`` are words such as ``every 2h``. ``script`` is a line for the shell whose output the agent gets with the
    prompt; without a prompt it is all there is to the job, and no model is asked. ``deliver`` are places: ``origin``,
    ``home``, ``nowhere``, or such as ``telegram:Family``. ``times`` is how often it may run, 0 without an end;
    ``dollars`` what it may spend in a month.
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


class Asker(Struct, frozen=True, kw_only=True):
    """Who asks: as whom, before which audience, in which conversation and at which place; ``key`` is that of a call.

    With the same key the same job is made again, not another one. ``everyone`` lets the owner of the agent see to the
    jobs of others, too.
    """

    owner: str = ""
    audience: str = ""
    session_id: SessionId | None = None
    address: Address | None = None
    key: str = ""
    everyone: bool = False


class JobView(Struct, frozen=True, kw_only=True):
    """A job as it is shown; ``remarks`` are what whoever has just changed it should know."""

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
        """What there is to say about it, by what it is called."""
        told = {
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
        return {name: value for name, value in told.items() if value}


class RunView(Struct, frozen=True, kw_only=True):
    """One time that a job was due, and what became of it."""

    due_at: datetime
    due_told: str
    state: RunState
    started_at: datetime
    ended_at: datetime | None
    session_id: SessionId | None
    output: str


class JobDesk(Protocol):
    """The jobs of whoever asks; words name one by its id, its name, or a part of either.

    Raises `Refused` for what makes no sense, `NotFound` and `Ambiguous` for words that name no job or several.
    """

    async def add(self, wish: JobWish, asker: Asker) -> JobView:
        """Make a job; without a time of its own its prompt begins with one."""

    async def find(self, words: str, asker: Asker) -> Sequence[JobView]:
        """Return the one that is named, or all of them without words."""

    async def change(self, words: str, wish: JobWish, asker: Asker) -> JobView:
        """Change what is given."""

    async def remove(self, words: str, asker: Asker) -> JobView:
        """Remove a job with its history."""

    async def run(self, words: str, asker: Asker) -> JobView:
        """Let it run now, whatever its schedule says."""

    async def history(self, words: str, asker: Asker, limit: int = 10) -> Sequence[RunView]:
        """Return its latest runs, newest first."""
