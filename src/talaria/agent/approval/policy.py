"""Decide about a call: allowed, to be asked about, or refused."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from talaria.agent.approval.confinement import Confinement
from talaria.agent.approval.dangers import Danger
from talaria.agent.approval.grants import Grant
from talaria.agent.approval.places import Places, mentions_credentials
from talaria.contracts.tool import Deed, Effect, Workspace

if TYPE_CHECKING:  # what is known of shells and programs is loaded with the first command
    from talaria.agent.approval.examination import Examination

Mode = Literal["ask", "allow-list", "off"]


class Allow(Struct, frozen=True, tag="allow"):
    """It may run."""


class Ask(Struct, frozen=True, tag="ask"):
    """Somebody must say so first; ``dangers`` are what a permission would be about."""

    reason: str
    dangers: tuple[Danger, ...]


class Deny(Struct, frozen=True, tag="deny"):
    """It must not run, whoever asks."""

    reason: str


Judgement = Allow | Ask | Deny


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    """The rules of one agent.

    ``ask`` lets through what is not dangerous. ``allow-list`` lets through only what reads, and what ``allowed`` or
    a person's grants name. ``off`` lets everything through. What would destroy the machine or the person's home is
    refused in every mode. ``protected`` are folders with our own secrets, the profile's, and ``readable`` is what
    lies in them for the model to read.

    ``confined`` is for others than the owner of the agent, in every mode.

    It looks at what a command says, not at what it does: a script may hide anything. The sandbox is the wall, this
    is the bell.
    """

    home: Path
    mode: Mode = "ask"
    allowed: tuple[Grant, ...] = ()
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    confined: Confinement | None = None
    scratch: set[str] = field(default_factory=set)

    def judge(
        self, tool: str, effect: Effect, deed: Deed, workspace: Workspace, grants: Sequence[Grant] = ()
    ) -> Judgement:
        """Return the judgement of a call that is about to run in ``workspace``."""
        if self.confined is not None and (reason := self.confined.refusal(tool, deed, workspace)):
            return Deny(reason)
        places = Places(workspace.folder, self.home, self.protected, self.readable, self.scratch)
        dangers = self._dangers(effect, deed, places, tool, workspace.environment)
        fatal = [danger.reason for danger in dangers if danger.fatal]
        if fatal:
            return Deny(f"It {' and '.join(fatal)}. Nobody can allow that here.")
        if self.mode == "off":
            return Allow()
        folder, rules = str(workspace.folder), (*self.allowed, *grants)
        left = [one for one in dangers if not any(rule.covers(tool, deed, one, folder) for rule in rules)]
        if not left:
            return Allow()
        return Ask("; ".join(dict.fromkeys(danger.reason for danger in left)), tuple(left))

    def _dangers(
        self, effect: Effect, deed: Deed, places: Places, tool: str, environment: Mapping[str, str]
    ) -> list[Danger]:
        strict = self.mode == "allow-list"
        match deed.kind:
            case "command":
                return _of_command(deed.target, places, environment, strict=strict)
            case "code":
                return _of_code(deed.target, tool, strict=strict)
            case "read":
                return _of_reading(deed.target, places)
            case "write":
                return _of_writing(deed.target, places, strict=strict)
            case "fetch":
                return []
            case "send":
                return _of_sending(deed.place, tool)
            case "other":
                return _of_others(effect, deed.target, tool)


def _of_command(command: str, places: Places, environment: Mapping[str, str], *, strict: bool) -> list[Danger]:
    examination: Examination = import_module("talaria.agent.approval.examination").Examination(places, environment)
    examination.examine(command)
    unlisted = dict.fromkeys(examination.subjects) if strict else ()
    return [*examination.found, *(Danger("unlisted", f"runs {one}", one) for one in unlisted)]


def _of_code(code: str, tool: str, *, strict: bool) -> list[Danger]:
    found = [Danger("unlisted", "runs code", tool)] if strict else []
    if mentions_credentials(code):
        found.append(Danger("credentials", "runs code that names a place of credentials", tool, narrow=True))
    if import_module("talaria.agent.approval.programs").starts_programs(code):
        found.append(Danger("code", "runs code that starts programs or deletes folders", tool))
    return found


def _of_reading(target: str, places: Places) -> list[Danger]:
    secret = next((path for path in places.paths(target) or () if places.is_secret(path)), None)
    if secret is None:
        return []
    return [Danger("credentials", f"reads where credentials are kept: {secret}", str(secret))]


def _of_writing(target: str, places: Places, *, strict: bool) -> list[Danger]:
    paths = places.paths(target)
    if not paths:
        return []
    danger = places.write_danger(paths, str(paths[0]))
    if danger is not None:
        return [danger]
    return [Danger("unlisted", f"writes {paths[0]}", str(paths[0]))] if strict else []


def _of_sending(place: str, tool: str) -> list[Danger]:
    return [Danger("irreversible", f"sends a message to {place}", f"{tool} {place}")] if place else []


def _of_others(effect: Effect, target: str, tool: str) -> list[Danger]:
    if effect is not Effect.IRREVERSIBLE:
        return []
    return [Danger("irreversible", f"cannot be undone: {target}" if target else "cannot be undone", tool)]
