"""The approval policy: allow, ask about, or refuse a tool call, by the rules of the settings and its dangers."""

import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from talaria.agent.approval.grants import Danger, Grant
from talaria.agent.approval.paths import PathRules, mentions_credentials
from talaria.agent.approval.programs import starts_programs, subject_of
from talaria.agent.approval.shell_state import UNKNOWN, SimpleCommand
from talaria.contracts.tool import Effect, ProposedAction, Workspace

if TYPE_CHECKING:  # loaded with the first command
    from talaria.agent.approval.shell_analysis import ShellExamination

RuleAction = Literal["deny", "ask", "allow"]
Mode = Literal["ask", "allow-list", "off"]
_PLANNING_TOOLS = frozenset(("todo", "skills"))
# Programs that never change anything, whatever their arguments; `sort -o` is seen as writing.
_READING_PROGRAMS = frozenset(
    {
    "echo", "printf", ":", "true", "false", "cd", "pwd", "ls", "cat", "head", "tail", "wc", "whoami", "uname", "test",
    "[", "[[", "grep", "rg", "which", "type", "basename", "dirname", "sort", "cut", "tr", "diff", "stat", "sleep",
    "exit", "seq", "id", "df", "du", "ps", "jq",
}
)  # fmt: skip
_GIT_READING = frozenset({("status",), ("log",), ("diff",), ("show",), ("blame",), ("ls-files",), ("rev-parse",)})


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
        find = _starts_with if self.action == "allow" else _may_run
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


class Confinement(Struct, frozen=True):
    """A restriction to these tools, reading and writing only in these folders.

    It doesn't limit what a command or a program does once it runs: guests therefore get neither by default.
    """

    folders: tuple[Path, ...]
    tools: Callable[[str], bool]

    def explain_refusal(self, tool: str, proposed_action: ProposedAction, workspace: Workspace) -> str:
        """Return why a call must not run; empty if it may."""
        if not self.tools(tool):
            return f"Only the owner of this agent may use {tool}. Nobody else can approve it."
        path = proposed_action.target if proposed_action.kind in {"read", "write"} else proposed_action.file
        if path and not self._is_inside(path, workspace):
            return "It is outside this conversation's folders. Nobody can approve that here."
        return ""

    def _is_inside(self, target: str, workspace: Workspace) -> bool:
        try:
            real = Path(os.path.realpath(workspace.resolve(target)))
        except (ValueError, RuntimeError):  # not a path, or the home of an unknown user
            return False
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in self.folders)


class Allow(Struct, frozen=True, tag="allow"):
    """The call may run."""


class Ask(Struct, frozen=True, tag="ask"):
    """The call needs approval; a grant would be about ``dangers``."""

    reason: str
    dangers: tuple[Danger, ...]


class Deny(Struct, frozen=True, tag="deny"):
    """The call must not run, even if a person approves it."""

    reason: str


Judgement = Allow | Ask | Deny


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    """The approval rules of an agent.

    ``ask`` allows what is not dangerous. ``allow-list`` allows only reading, and what ``allowed`` or a person's grants
    name. ``off`` allows everything. Destroying the machine or the user's home is refused in every mode. ``protected``
    are folders with our own secrets, the profile's, and ``readable`` is the part of them that the model may read.

    ``confined`` applies to anyone but the agent's owner, in every mode. So do ``rules``, those of this person and
    surface: one that denies wins, then one that asks, then one that allows. Only an approval of exactly the same call
    answers a rule that asks.

    The policy judges the text of a command, not its behaviour: a script may hide anything. Only the sandbox enforces
    limits; this policy warns.
    """

    home: Path
    mode: Mode = "ask"
    allowed: tuple[Grant, ...] = ()
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    confined: Confinement | None = None
    rules: tuple[ApprovalRule, ...] = ()
    scratch: set[str] = field(default_factory=set)

    def judge(
        self,
        tool: str,
        effect: Effect,
        proposed_action: ProposedAction,
        workspace: Workspace,
        grants: Sequence[Grant] = (),
    ) -> Judgement:
        """Return the judgement of a call that is about to run in ``workspace``."""
        if self.confined is not None and (reason := self.confined.explain_refusal(tool, proposed_action, workspace)):
            return Deny(reason)
        examination = self._examine(proposed_action, workspace)
        dangers = self._find_dangers(effect, proposed_action, self._make_path_rules(workspace), tool, examination)
        fatal = [danger.reason for danger in dangers if danger.fatal]
        if fatal:
            return Deny(f"It {' and '.join(fatal)}. Nobody can approve that here.")
        commands = examination.commands if examination is not None else ()
        matching = [one for one in self.rules if one.matches(tool, proposed_action, commands, workspace, self.home)]
        if denying := next((rule for rule in matching if rule.action == "deny"), None):
            return Deny(f"The rule `{denying.name}` of the settings forbids it. Nobody can approve that here.")
        asking = [
            Danger("rule", f"needs approval by the rule `{rule.name}` of the settings", tool, narrow=True)
            for rule in matching
            if rule.action == "ask"
        ]
        allowing = [rule for rule in matching if rule.action == "allow"]
        folder, allowed = str(workspace.folder), (*self.allowed, *grants)
        remaining = [
            one
            for one in (*asking, *(dangers if self.mode != "off" else ()))
            if not any(grant.covers(tool, proposed_action, one, folder) for grant in allowed)
            and not any(rule.covers(one, commands) for rule in allowing)
        ]
        if not remaining:
            return Allow()
        return Ask("; ".join(dict.fromkeys(danger.reason for danger in remaining)), tuple(remaining))

    def only_reads(self, tool: str, effect: Effect, proposed_action: ProposedAction, workspace: Workspace) -> bool:
        """Return whether a call is certain to change nothing: it reads, or is a command of reading programs."""
        if effect is Effect.READS or tool in _PLANNING_TOOLS:
            return True
        examination = self._examine(proposed_action, workspace)
        if examination is None or effect is not Effect.IRREVERSIBLE:
            return False
        is_quiet = not examination.found and not examination.writes
        return is_quiet and all(
            one.program in _READING_PROGRAMS or _is_git_reading(one) for one in examination.commands
        )

    def _make_path_rules(self, workspace: Workspace) -> PathRules:
        return PathRules(workspace.folder, self.home, self.protected, self.readable, self.scratch)

    def _examine(self, proposed_action: ProposedAction, workspace: Workspace) -> "ShellExamination | None":
        """Return the examination of a command; ``None`` for other calls."""
        if proposed_action.kind != "command":
            return None
        from talaria.agent.approval.shell_analysis import ShellExamination  # noqa: PLC0415 (loaded with the first command: parses shell)

        examination = ShellExamination(self._make_path_rules(workspace), workspace.environment)
        examination.examine(proposed_action.target)
        return examination

    def _find_dangers(
        self,
        effect: Effect,
        proposed_action: ProposedAction,
        path_rules: PathRules,
        tool: str,
        examination: "ShellExamination | None",
    ) -> list[Danger]:
        strict = self.mode == "allow-list"
        match proposed_action.kind:
            case "command":
                assert examination is not None
                unlisted = dict.fromkeys(examination.subjects) if strict else ()
                return [*examination.found, *(Danger("unlisted", f"runs {one}", one) for one in unlisted)]
            case "code":
                return _find_code_dangers(proposed_action.target, tool, strict=strict)
            case "read":
                return _read_dangers(proposed_action.target, path_rules)
            case "write":
                return _write_dangers(proposed_action.target, path_rules, strict=strict)
            case "fetch":
                return []
            case "send":
                return _send_dangers(proposed_action.destination, tool)
            case "page" | "submit":
                return _find_page_dangers(proposed_action, path_rules, tool, strict=strict)
            case "skill":
                reason = "changes instructions that later conversations follow"
                return [Danger("start-up", reason, proposed_action.target, narrow=True)]
            case "other":
                return _find_other_dangers(effect, proposed_action.target, tool)


def _starts_with(command: SimpleCommand, pattern: str) -> bool:
    """Return whether the first words of a command match exactly; an unknown word never does."""
    words, patterns = (command.program, *command.arguments), pattern.split()
    pairs = zip(words, patterns, strict=False)
    known = len(words) >= len(patterns) and not any(UNKNOWN in word for word in words[: len(patterns)])
    return known and all(fnmatchcase(word, one) for word, one in pairs)


def _may_run(command: SimpleCommand, pattern: str) -> bool:
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


def _is_git_reading(command: SimpleCommand) -> bool:
    words = command.arguments
    return command.program == "git" and words[:1] in _GIT_READING and not any(one.startswith("--o") for one in words)


def _find_code_dangers(code: str, tool: str, *, strict: bool) -> list[Danger]:
    found = [Danger("unlisted", "runs code", tool)] if strict else []
    if mentions_credentials(code):
        found.append(Danger("credentials", "runs code that mentions a credentials folder", tool, narrow=True))
    if starts_programs(code):
        found.append(Danger("code", "runs code that starts programs or deletes folders", tool))
    return found


def _read_dangers(target: str, path_rules: PathRules) -> list[Danger]:
    secret = next((path for path in path_rules.resolve_paths(target) or () if path_rules.is_secret(path)), None)
    if secret is None:
        return []
    return [Danger("credentials", f"reads credentials: {secret}", str(secret))]


def _write_dangers(target: str, path_rules: PathRules, *, strict: bool) -> list[Danger]:
    paths = path_rules.resolve_paths(target)
    if not paths:
        return []
    danger = path_rules.write_danger(paths, str(paths[0]))
    if danger is not None:
        return [danger]
    return [Danger("unlisted", f"writes {paths[0]}", str(paths[0]))] if strict else []


def _send_dangers(destination: str, tool: str) -> list[Danger]:
    return [Danger("irreversible", f"sends a message to {destination}", f"{tool} {destination}")] if destination else []


def _find_page_dangers(
    proposed_action: ProposedAction, path_rules: PathRules, tool: str, *, strict: bool
) -> list[Danger]:
    """Return the dangers of acting on a website; a rule may name it, for example `submit example.com`."""
    if proposed_action.kind == "page":
        return [Danger("unlisted", f"acts on {proposed_action.destination}", tool)] if strict else []
    verb = "uploads a file to" if proposed_action.file else "submits something to"
    subject = f"{'upload' if proposed_action.file else 'submit'} {proposed_action.destination}"
    credentials = _read_dangers(proposed_action.file, path_rules) if proposed_action.file else []
    return [*credentials, Danger("irreversible", f"{verb} {proposed_action.destination}", subject)]


def _find_other_dangers(effect: Effect, target: str, tool: str) -> list[Danger]:
    if effect is not Effect.IRREVERSIBLE:
        return []
    return [Danger("irreversible", f"can't be undone: {target}" if target else "can't be undone", tool)]
