"""Grants: permissions given by a person, so that they are not asked again."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from talaria.contracts.tool import ProposedAction

DangerKind = Literal[
    "deletion", "device", "system", "history", "credentials", "code", "packages", "privilege", "outside", "start-up",
    "unlisted", "irreversible", "rule",
]  # fmt: skip


class Danger(Struct, frozen=True):
    """One reason to ask.

    ``subject`` is the program with its subcommand, or the path, that a rule may name. A ``fatal`` one is never allowed,
    whatever the settings say; a ``narrow`` one can be allowed only for exactly the same call.
    """

    kind: DangerKind
    reason: str
    subject: str = ""
    fatal: bool = False
    narrow: bool = False


Scope = Literal["once", "session", "always"]


class Grant(Struct, frozen=True, omit_defaults=True):
    """A stored permission.

    ``exact`` allows exactly the same action in the same folder. Otherwise ``pattern`` is a program, optionally with a
    subcommand, or a path, and allows that kind of danger for it; an empty ``kind`` is any kind.
    """

    tool: str
    pattern: str
    exact: bool = False
    kind: str = ""
    folder: str = ""
    scope: Scope = "session"

    def covers(self, tool: str, proposed_action: ProposedAction, danger: Danger, folder: str) -> bool:
        """Return whether this grant covers a danger."""
        if danger.fatal or self.tool not in ("", tool):
            return False
        if self.exact:
            return proposed_action.target == self.pattern and self.folder in ("", folder)
        return not danger.narrow and self.kind in ("", danger.kind) and _matches_pattern(danger.subject, self.pattern)


def parse_allow_entry(entry: str) -> Grant:
    """Return the grant for an entry in the settings, for example ``git push``."""
    return Grant("", entry, scope="always")


def make_grants(
    tool: str,
    proposed_action: ProposedAction,
    dangers: Iterable[Danger],
    *,
    folder: str,
    scope: Scope,
    exact: bool = True,
) -> tuple[Grant, ...]:
    """Return the grants to store for a person's approval.

    Unless ``exact`` it is one pattern per danger; for a narrow danger it is the exact action.
    """
    found = tuple(dangers)
    if exact or scope == "once" or any(danger.narrow or not danger.subject for danger in found):
        return (Grant(tool, proposed_action.target, exact=True, folder=folder, scope=scope),)
    return tuple(dict.fromkeys(Grant(tool, one.subject, kind=one.kind, scope=scope) for one in found))


def _matches_pattern(subject: str, pattern: str) -> bool:
    words, pattern_words = subject.split(), pattern.split()
    return bool(pattern_words) and words[: len(pattern_words)] == pattern_words
