"""Approval rules of the settings: deny, ask or allow calls by tool, command, folder, surface and person."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.agent.approval.grants import Danger
from talaria.agent.approval.programs import subject_of
from talaria.agent.approval.shell_state import UNKNOWN, SimpleCommand
from talaria.contracts.tool import ProposedAction, Workspace

RuleAction = Literal["deny", "ask", "allow"]


class ApprovalRule(Struct, frozen=True, kw_only=True):
    """A rule; it applies to a call if everything that it names matches. Empty fields match anything.

    ``tool`` is a name with wildcards. ``command`` are the first words of a command, each with wildcards. ``folder`` is
    where a file is, or where a command runs. ``surface`` and ``person`` are those of the turn.
    """

    name: str
    action: RuleAction
    tool: str = ""
    command: str = ""
    folder: str = ""
    surface: str = ""
    person: str = ""

    def is_for(self, surface: str, person: str) -> bool:
        """Return whether the rule is about turns of this person on this surface."""
        return self.surface in ("", surface) and self.person in ("", person)

    def matches(
        self,
        tool: str,
        proposed_action: ProposedAction,
        commands: Sequence[SimpleCommand],
        workspace: Workspace,
        home: Path,
    ) -> bool:
        """Return whether a call is one that the rule names; of several commands in a call, one is enough."""
        if self.tool and not fnmatchcase(tool, self.tool):
            return False
        find = _starts_with if self.action == "allow" else _runs
        if self.command and not any(find(command, self.command) for command in commands):
            return False
        return not self.folder or self._is_inside(proposed_action, workspace, home)

    def covers(self, danger: Danger, commands: Sequence[SimpleCommand]) -> bool:
        """Return whether a matching rule that allows also allows this danger of the call.

        With ``command``, every command that the danger is about has to start with it.
        """
        if danger.fatal or danger.narrow:
            return False
        concerned = [command for command in commands if subject_of(command) == danger.subject]
        return not self.command or (bool(concerned) and all(_starts_with(one, self.command) for one in concerned))

    def _is_inside(self, proposed_action: ProposedAction, workspace: Workspace, home: Path) -> bool:
        folder = os.path.realpath(home / self.folder.removeprefix("~/") if self.folder[:1] == "~" else self.folder)
        if proposed_action.kind not in ("read", "write"):
            return Path(os.path.realpath(workspace.folder)).is_relative_to(folder)
        try:
            return Path(os.path.realpath(workspace.resolve(proposed_action.target))).is_relative_to(folder)
        except (ValueError, RuntimeError):  # not a path, or the home of an unknown user
            return False


def _starts_with(command: SimpleCommand, pattern: str) -> bool:
    """Return whether the first words of a command match exactly; an unknown word never does."""
    words, patterns = (command.program, *command.arguments), pattern.split()
    pairs = zip(words, patterns, strict=False)
    known = len(words) >= len(patterns) and not any(UNKNOWN in word for word in words[: len(patterns)])
    return known and all(fnmatchcase(word, one) for word, one in pairs)


def _runs(command: SimpleCommand, pattern: str) -> bool:
    """Return whether a command may be what a pattern means; options between its words are skipped."""
    program, *patterns = pattern.split()
    if not fnmatchcase(command.program, program):
        return False
    words, reached = command.arguments, {0}
    for one in patterns:
        for index, word in enumerate(words):
            if index in reached and word.startswith("-"):
                reached |= {index + 1, index + 2}
        reached = {index + 1 for index in reached if index < len(words) and fnmatchcase(words[index], one)}
    return bool(reached)
