"""What a person has allowed, so that they are not asked again."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from talaria.agent.approval.dangers import Danger
from talaria.contracts.tool import Deed

Scope = Literal["once", "session", "always"]


class Grant(Struct, frozen=True, omit_defaults=True):
    """One permission, as it is stored.

    ``exact`` allows the very same deed in the same folder. Otherwise ``pattern`` is a program with perhaps a
    subcommand, or a path, and allows that kind of danger wherever it comes from them; no ``kind`` is any kind.
    """

    tool: str
    pattern: str
    exact: bool = False
    kind: str = ""
    folder: str = ""
    scope: Scope = "session"

    def covers(self, tool: str, deed: Deed, danger: Danger, folder: str) -> bool:
        """Return whether this makes asking about a danger unnecessary."""
        if danger.fatal or self.tool not in ("", tool):
            return False
        if self.exact:
            return deed.target == self.pattern and self.folder in ("", folder)
        return not danger.narrow and self.kind in ("", danger.kind) and _begins(danger.subject, self.pattern)


def allow_listed(entry: str) -> Grant:
    """Return the permission that an entry of the settings stands for, such as ``git push``."""
    return Grant("", entry, scope="always")


def grants_for(
    tool: str, deed: Deed, dangers: Iterable[Danger], *, folder: str, scope: Scope, exact: bool = True
) -> tuple[Grant, ...]:
    """Return what to remember of a person's yes.

    Unless ``exact`` it is one pattern for each danger; where a danger is too narrow for that, it is the exact deed.
    """
    found = tuple(dangers)
    if exact or scope == "once" or any(danger.narrow or not danger.subject for danger in found):
        return (Grant(tool, deed.target, exact=True, folder=folder, scope=scope),)
    return tuple(dict.fromkeys(Grant(tool, one.subject, kind=one.kind, scope=scope) for one in found))


def _begins(subject: str, pattern: str) -> bool:
    words, wanted = subject.split(), pattern.split()
    return bool(wanted) and words[: len(wanted)] == wanted
