"""The approval policy: allow, ask about, or refuse a tool call."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from talaria.agent.approval.grants import Danger, Grant
from talaria.agent.approval.paths import PathRules, mentions_credentials
from talaria.contracts.tool import Effect, ProposedAction, Workspace


class Confinement(Struct, frozen=True):
    """A restriction to these tools, reading and writing only in these folders.

    It doesn't limit what a command or a program does once it runs: guests therefore get neither by default.
    """

    places: tuple[Path, ...]
    tools: Callable[[str], bool]

    def refusal(self, tool: str, proposed_action: ProposedAction, workspace: Workspace) -> str:
        """Return why a call must not run; empty if it may."""
        if not self.tools(tool):
            return f"Only the owner of this agent may use {tool}. Nobody else can approve it."
        if proposed_action.kind in {"read", "write"} and not self._is_inside(proposed_action.target, workspace):
            return "It is outside this conversation's folders. Nobody can approve that here."
        return ""

    def _is_inside(self, target: str, workspace: Workspace) -> bool:
        try:
            real = Path(os.path.realpath(workspace.resolve(target)))
        except (ValueError, RuntimeError):  # not a path, or the home of an unknown user
            return False
        return any(real.is_relative_to(os.path.realpath(place)) for place in self.places)


Mode = Literal["ask", "allow-list", "off"]


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

    ``confined`` applies to anyone but the agent's owner, in every mode.

    The policy judges the text of a command, not its behaviour: a script may hide anything. Only the sandbox enforces
    limits; this policy warns.
    """

    home: Path
    mode: Mode = "ask"
    allowed: tuple[Grant, ...] = ()
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    confined: Confinement | None = None
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
        if self.confined is not None and (reason := self.confined.refusal(tool, proposed_action, workspace)):
            return Deny(reason)
        places = PathRules(workspace.folder, self.home, self.protected, self.readable, self.scratch)
        dangers = self._dangers(effect, proposed_action, places, tool, workspace.environment)
        fatal = [danger.reason for danger in dangers if danger.fatal]
        if fatal:
            return Deny(f"It {' and '.join(fatal)}. Nobody can approve that here.")
        if self.mode == "off":
            return Allow()
        folder, rules = str(workspace.folder), (*self.allowed, *grants)
        remaining = [
            one for one in dangers if not any(rule.covers(tool, proposed_action, one, folder) for rule in rules)
        ]
        if not remaining:
            return Allow()
        return Ask("; ".join(dict.fromkeys(danger.reason for danger in remaining)), tuple(remaining))

    def _dangers(
        self,
        effect: Effect,
        proposed_action: ProposedAction,
        places: PathRules,
        tool: str,
        environment: Mapping[str, str],
    ) -> list[Danger]:
        strict = self.mode == "allow-list"
        match proposed_action.kind:
            case "command":
                return _command_dangers(proposed_action.target, places, environment, strict=strict)
            case "code":
                return _code_dangers(proposed_action.target, tool, strict=strict)
            case "read":
                return _read_dangers(proposed_action.target, places)
            case "write":
                return _write_dangers(proposed_action.target, places, strict=strict)
            case "fetch":
                return []
            case "send":
                return _send_dangers(proposed_action.place, tool)
            case "other":
                return _other_dangers(effect, proposed_action.target, tool)


def _command_dangers(command: str, places: PathRules, environment: Mapping[str, str], *, strict: bool) -> list[Danger]:
    from talaria.agent.approval.shell_analysis import ShellExamination  # noqa: PLC0415 (loaded with the first command: parses shell)

    examination = ShellExamination(places, environment)
    examination.examine(command)
    unlisted = dict.fromkeys(examination.subjects) if strict else ()
    return [*examination.found, *(Danger("unlisted", f"runs {one}", one) for one in unlisted)]


def _code_dangers(code: str, tool: str, *, strict: bool) -> list[Danger]:
    from talaria.agent.approval.programs import starts_programs  # noqa: PLC0415 (loaded with the first code to check)

    found = [Danger("unlisted", "runs code", tool)] if strict else []
    if mentions_credentials(code):
        found.append(Danger("credentials", "runs code that mentions a credentials folder", tool, narrow=True))
    if starts_programs(code):
        found.append(Danger("code", "runs code that starts programs or deletes folders", tool))
    return found


def _read_dangers(target: str, places: PathRules) -> list[Danger]:
    secret = next((path for path in places.paths(target) or () if places.is_secret(path)), None)
    if secret is None:
        return []
    return [Danger("credentials", f"reads credentials: {secret}", str(secret))]


def _write_dangers(target: str, places: PathRules, *, strict: bool) -> list[Danger]:
    paths = places.paths(target)
    if not paths:
        return []
    danger = places.write_danger(paths, str(paths[0]))
    if danger is not None:
        return [danger]
    return [Danger("unlisted", f"writes {paths[0]}", str(paths[0]))] if strict else []


def _send_dangers(place: str, tool: str) -> list[Danger]:
    return [Danger("irreversible", f"sends a message to {place}", f"{tool} {place}")] if place else []


def _other_dangers(effect: Effect, target: str, tool: str) -> list[Danger]:
    if effect is not Effect.IRREVERSIBLE:
        return []
    return [Danger("irreversible", f"can't be undone: {target}" if target else "can't be undone", tool)]
