"""Another agent's home as data, in Talaria's terms, and the report of its import."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from talaria.contracts.jobs import JobRequest
from talaria.contracts.stores.access import PairedPerson
from talaria.core.addresses import Address
from talaria.core.messages import Message, Usage

ImportKind = Literal[
    "sessions", "settings", "keys", "persona", "memory", "skills", "commands", "MCP servers", "jobs", "people"
]
ImportOutcome = Literal["imported", "changed", "unchanged", "skipped"]
_HOMES = {
    "hermes": ("HERMES_HOME", ".hermes"),
    "openclaw": ("OPENCLAW_STATE_DIR", ".openclaw"),
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude"),
    "codex": ("CODEX_HOME", ".codex"),
}
AGENTS = tuple(_HOMES)


def find_foreign_home(agent: str, environment: Mapping[str, str]) -> Path:
    """Return the usual home of an agent for this user."""
    variable, folder = _HOMES[agent]
    chosen = environment.get(variable)
    return Path(chosen).expanduser() if chosen else Path(environment.get("HOME") or Path.home()) / folder


class ForeignSession(Struct, frozen=True, kw_only=True):
    """A conversation in another agent's home, without its messages.

    ``key`` identifies it there, and ``version`` differs when it has changed. ``parent`` is the key of the session that
    it continues or was branched from. ``address`` is its chat with the person who owns it; a chat that continues with
    this session makes it ``is_current``. ``folder`` is where it works.
    """

    key: str
    version: str
    source: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    title: str = ""
    model: str = ""
    parent: str = ""
    folder: str = ""
    address: Address | None = None
    is_current: bool = False
    is_archived: bool = False
    usage: Usage = Usage()
    turns: int = 0


class ForeignSummary(Struct, frozen=True):
    """Summary that the other agent sends to its model instead of the first ``upto`` messages."""

    upto: int
    text: str


class ForeignTranscript(Struct, frozen=True):
    """The messages of a session; the first ``shared`` ones are also the first ones of its parent.

    An image is a web address, a ``data:`` URL or a file in the other home. ``problems`` are sentences.
    """

    messages: Sequence[Message]
    shared: int = 0
    problems: tuple[str, ...] = ()
    summary: ForeignSummary | None = None


class ForeignSkill(Struct, frozen=True):
    """A folder with a SKILL.md."""

    name: str
    folder: Path


class ForeignJob(Struct, frozen=True):
    """A scheduled job; ``key`` identifies it in the other home."""

    key: str
    request: JobRequest


class SkippedItem(Struct, frozen=True):
    """Item that is not imported, and the reason."""

    kind: ImportKind
    name: str
    reason: str


class ForeignHome(Struct, frozen=True, kw_only=True):
    """Everything in another agent's home that Talaria has a place for.

    ``settings`` and ``servers`` have Talaria's keys. ``instructions`` go with every request, after the identity.
    ``facts`` are about the person, ``memory`` is the rest of the memory, and ``notes`` are longer texts by file name.
    ``allowed`` has people as ``platform:id``.
    """

    sessions: tuple[ForeignSession, ...] = ()
    settings: Mapping[str, Any] = {}
    keys: Mapping[str, str] = {}
    persona: str = ""
    instructions: str = ""
    personalities: Mapping[str, str] = {}
    memory: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    skills: tuple[ForeignSkill, ...] = ()
    commands: Mapping[str, str] = {}
    servers: Mapping[str, Mapping[str, Any]] = {}
    jobs: tuple[ForeignJob, ...] = ()
    allowed: tuple[str, ...] = ()
    paired: tuple[PairedPerson, ...] = ()
    home_chats: tuple[Address, ...] = ()
    skipped: tuple[SkippedItem, ...] = ()


class ForeignAgent(Protocol):
    """Another agent's home, read and never written; closing it removes temporary copies."""

    title: str
    home: Path

    def survey(self) -> ForeignHome:
        """Return everything but the messages; what can't be read is among the skipped items.

        Raises `Refused` if this isn't the home of such an agent.
        """

    def read_transcript(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session; raises `Refused` if none can be read."""

    def close(self) -> None:
        """Remove temporary copies."""


class ImportItem(Struct, frozen=True):
    """Outcome of the import of one thing, or of ``count`` sessions together."""

    kind: ImportKind
    name: str
    outcome: ImportOutcome
    detail: str = ""
    count: int = 1


class ImportPlan(Struct, frozen=True, kw_only=True):
    """Plan of an import; ``items`` have the outcome that is expected.

    ``people`` are those among the allowed who might be the owner of this agent.
    """

    agent: str
    home: Path
    items: tuple[ImportItem, ...]
    messages: int
    keys: tuple[str, ...]
    people: tuple[str, ...]


class ImportChoices(Struct, frozen=True, kw_only=True):
    """Decisions of the person: whether keys are copied, jobs start at once, and who of the people they are."""

    with_keys: bool = False
    start_jobs: bool = False
    owners: tuple[str, ...] = ()


class Importer(Protocol):
    """The import of one home into the current profile."""

    def plan(self) -> ImportPlan:
        """Return what would happen; writes nothing."""

    def run(self, choices: ImportChoices, on_progress: Callable[[int], None]) -> list[ImportItem]:
        """Import everything and return what happened; ``on_progress`` gets the number of messages done."""
