"""Skills as people manage them: where they come from, what they would run, and whether the agent sees them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.errors import StoreConflict

SourceKind = Literal["folder", "git", "zip"]


class SkillOrigin(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Origin of an installed skill.

    ``path`` is its folder in the source, ``ref`` the branch, tag or commit that was asked for, and ``pin`` the commit,
    or the SHA-256 of the archive, that was installed.
    """

    kind: SourceKind
    source: str
    path: str = ""
    ref: str = ""
    pin: str = ""

    @property
    def short_pin(self) -> str:
        """The start of the pin, for people."""
        return self.pin[:12]


class SkillFileInfo(Struct, frozen=True):
    """A file of a skill; a ``script`` can be run."""

    path: str
    size: int
    script: bool = False


class SkillAudit(Struct, frozen=True, kw_only=True):
    """Contents and possible effects of a skill.

    ``commands`` are the command lines in its texts, ``addresses`` the servers that it names, ``tools`` those that it
    asks for or needs, ``requires`` its programs and variables. ``warnings`` are sentences about what deserves a look.
    ``digest`` stands for the files that were looked at.
    """

    files: tuple[SkillFileInfo, ...]
    commands: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str = ""

    @property
    def scripts(self) -> tuple[str, ...]:
        """The files that can be run."""
        return tuple(one.path for one in self.files if one.script)


class SkillInfo(Struct, frozen=True, kw_only=True):
    """A skill, with or without a problem.

    ``root`` names the folder it was found in: ``profile``, ``project``, or a path. ``problem`` is a sentence that says
    why the agent doesn't see it. ``is_own`` ones are in the profile and can be edited. ``command`` is its slash
    command, empty if there is none.
    """

    name: str
    about: str
    root: str
    folder: str
    is_enabled: bool
    is_own: bool = False
    problem: str = ""
    command: str = ""
    origin: SkillOrigin | None = None
    digest: str = ""
    uses: int = 0
    last_used: datetime | None = None


class SkillChange(Struct, frozen=True, kw_only=True):
    """A skill to install or to update, fetched but not written; ``diff`` is what changes in its files.

    ``previous`` is the origin of the installed version, if there is one. ``overwrites`` is set if that version was
    changed here.
    """

    name: str
    about: str
    origin: SkillOrigin
    digest: str
    audit: SkillAudit
    files: dict[str, tuple[bytes, bool]]
    diff: str = ""
    previous: SkillOrigin | None = None
    overwrites: bool = False


class SkillOffer(Struct, frozen=True):
    """A skill in a source that can be installed; ``problem`` says why not."""

    name: str
    about: str
    path: str
    problem: str = ""


class SkillUsage(Struct, frozen=True):
    """Number of times that a skill was read by the agent, and the last time."""

    count: int = 0
    last: datetime | None = None


SKILL_USAGE = NamedValue("skill_usage", SkillUsage)  # by name
NO_USAGE: Mapping[str, SkillUsage] = {}


def count_use(tx: Transaction, name: str) -> None:
    """Count one use of a skill; raises `StoreConflict` if another process counts one just now."""
    stored = SKILL_USAGE.read(tx, name)
    count = stored.value.count if stored.value else 0
    if not SKILL_USAGE.replace(tx, name, SkillUsage(count + 1, datetime.now(UTC)), version=stored.version):
        raise StoreConflict(f"the uses of skill {name} changed in the meantime")


class SkillCatalog(Protocol):
    """Skills of a profile, its project and the folders in the settings."""

    def list(self, usage: Mapping[str, SkillUsage] = NO_USAGE) -> Sequence[SkillInfo]:
        """Return all skills, hidden and broken ones included, by name."""

    def get(self, name: str) -> SkillInfo:
        """Return one skill; the one that is in effect if several have that name."""

    def text(self, name: str) -> str:
        """Return the instructions of a skill and the list of its files."""

    def instructions(self, name: str) -> str:
        """Return the text of a skill that the agent may see; raises `Refused` for any other."""

    def search(self, query: str) -> Sequence[SkillInfo]:
        """Return the skills that contain all words, best first."""

    def audit(self, name: str) -> SkillAudit:
        """Return what a skill would do."""


class SkillInstaller(Protocol):
    """Installation of skills, and switches for them; methods raise `Refused` and `NotFound` with what to do."""

    def list_offers(self, source: str, ref: str = "") -> Sequence[SkillOffer]:
        """Fetch a source and return the skills in it."""

    def fetch(
        self, source: str, names: Sequence[str] = (), *, ref: str = "", every: bool = False
    ) -> Sequence[SkillChange]:
        """Fetch the named skills of a source, or its only one, for `apply`."""

    def fetch_update(self, name: str) -> SkillChange | None:
        """Fetch an installed skill again; ``None`` if it hasn't changed."""

    def apply(self, change: SkillChange, *, enable: bool) -> None:
        """Write a fetched skill; unless ``enable``, the agent doesn't see it yet."""

    def switch(self, name: str, *, on: bool, seen: str = "") -> str:
        """Show a skill to the agent, with its current files, or hide it; return a sentence about the effect.

        With ``seen``, the digest of an audit, it is shown only if its files are still those.
        """

    def remove(self, name: str) -> str:
        """Remove a skill of the profile and return a sentence about where it is now."""


class SkillAdmin(SkillCatalog, SkillInstaller, Protocol):
    """Skills as commands manage them."""
