"""Discovery of a profile's hooks and their manifests (HOOK.yaml), without running any of their code."""

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from talaria.contracts.hooks import (
    AGENT_END,
    AGENT_START,
    AGENT_STEP,
    COMMAND,
    GATEWAY_START,
    SESSION_END,
    SESSION_RESET,
    SESSION_START,
    TOOL_CALL,
)
from talaria.core.errors import TalariaError

MANIFEST = "HOOK.yaml"
EVENTS = (GATEWAY_START, SESSION_START, SESSION_END, SESSION_RESET, AGENT_START, AGENT_STEP, AGENT_END, TOOL_CALL)
DEFAULT_TIMEOUT = 30.0
_MAX_SECONDS = 3600.0
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_TRUE_WORDS, _FALSE_WORDS = {"true", "yes", "on"}, {"false", "no", "off"}
_Node = Any  # a node of a YAML document; PyYAML has no types
FOLDER = "hooks"
HANDLER = "handler.py"
BOOT, BOOT_FILE = "boot", "BOOT.md"


class BrokenHook(TalariaError):
    """Error of an invalid hook; the message names the file, the line and the problem."""

    def __init__(self, file: Path, line: int, why: str) -> None:
        super().__init__(f"{file}, line {line}: {why}")


class HookManifest(Struct, frozen=True, kw_only=True):
    """Content of HOOK.yaml; ``run`` is a command, empty if handler.py handles the events."""

    name: str
    events: tuple[str, ...]
    description: str = ""
    enabled: bool = True
    timeout_seconds: float = DEFAULT_TIMEOUT
    run: str = ""

    def listens_to(self, event: str) -> bool:
        """Return whether the hook listens for this event."""
        return any(fnmatchcase(event, pattern) for pattern in self.events)

    @property
    def may_veto(self) -> bool:
        """Return whether it is asked before tool calls; a pattern for all events isn't enough."""
        return any(pattern.startswith("tool:") and fnmatchcase(TOOL_CALL, pattern) for pattern in self.events)


class _Field(Struct, frozen=True):
    """A raw value, or the items of a list, with their lines."""

    line: int
    values: list[tuple[int, str]]
    is_list: bool = False


def read_manifest(file: Path) -> HookManifest:
    """Parse a HOOK.yaml, or raise `BrokenHook`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenHook(file, 1, f"it can't be read: {error}.") from error
    try:
        return HookManifest(**{"name": file.parent.name, **_parse_manifest(text)})
    except _ManifestError as fault:
        raise BrokenHook(file, fault.line, fault.why) from None


class _ManifestError(Exception):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def _parse_text(field: _Field) -> str:
    if field.is_list:
        raise _ManifestError(field.line, "this must be text, not a list.")
    return field.values[0][1]


def _parse_name(field: _Field) -> str:
    name = _parse_text(field)
    if not _NAME.fullmatch(name):
        raise _ManifestError(
            field.line, f"`{name}` isn't a valid name: use at most 64 letters, digits, `-`, `_` and `.`."
        )
    return name


def _parse_flag(field: _Field) -> bool:
    word = _parse_text(field).lower()
    if word not in _TRUE_WORDS | _FALSE_WORDS:
        raise _ManifestError(field.line, f"`{word}` is neither `true` nor `false`.")
    return word in _TRUE_WORDS


def _parse_seconds(field: _Field) -> float:
    word = _parse_text(field)
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise _ManifestError(field.line, f"`{word}` isn't a number of seconds between 0 and {_MAX_SECONDS:g}.")
    return seconds


def _parse_patterns(field: _Field) -> tuple[str, ...]:
    patterns = [(line, value) for line, value in field.values if value]
    if not patterns:
        raise _ManifestError(field.line, "`events:` is empty.")
    for line, pattern in patterns:
        if not pattern.startswith(COMMAND) and not any(fnmatchcase(event, pattern) for event in EVENTS):
            suggestions = difflib.get_close_matches(pattern, EVENTS, n=1)
            hint = (
                f"did you mean `{suggestions[0]}`?"
                if suggestions
                else f"available: {', '.join(EVENTS)} and {COMMAND}NAME."
            )
            raise _ManifestError(line, f"there is no event `{pattern}`; {hint}")
    return tuple(value for _, value in patterns)


_PARSERS: dict[str, Callable[[_Field], Any]] = {
    "name": _parse_name,
    "description": _parse_text,
    "events": _parse_patterns,
    "enabled": _parse_flag,
    "timeout_seconds": _parse_seconds,
    "run": _parse_text,
}


_KNOWN_FIELDS = f"there are {', '.join(_PARSERS)}."


class Hook(Struct, frozen=True):
    """A usable hook and its folder."""

    folder: Path
    manifest: HookManifest

    @property
    def handler(self) -> Path:
        """Path of handler.py, for hooks without a command."""
        return self.folder / HANDLER


class UnusableHook(Struct, frozen=True):
    """A folder with an invalid hook; ``problem`` names the file and the line."""

    folder: Path
    problem: str


class HookSummary(Struct, frozen=True, kw_only=True):
    """A hook for display; ``problem`` is set for a broken one, and ``run`` is empty if a handler.py handles events."""

    name: str
    state: Literal["on", "off", "broken"]
    path: Path
    description: str = ""
    events: tuple[str, ...] = ()
    run: str = ""
    timeout_seconds: float | None = None
    problem: str = ""


def summarize_hooks(profile_folder: Path) -> list[HookSummary]:
    """Return all hooks of a profile for display, the built-in one first."""
    boot = profile_folder / BOOT_FILE
    built_in = HookSummary(
        name=BOOT,
        state="on" if boot.is_file() else "off",
        path=boot,
        description=f"Runs the prompt in {BOOT_FILE}, if there is one",
        events=(GATEWAY_START,),
    )
    return [built_in, *map(_summarize, find_hooks(profile_folder / FOLDER))]


def find_hooks(folder: Path) -> list[Hook | UnusableHook]:
    """Return the hooks in a folder, sorted by folder name; none if the folder is missing."""
    names = {BOOT: "the built-in hook"}
    return [_read_hook(one, names) for one in _iterate_folders(folder)]


def _parse_manifest(text: str) -> dict[str, Any]:
    read = {name: _PARSERS[name](field) for name, field in _iterate_fields(_compose(text))}
    if "events" not in read:
        raise _ManifestError(1, "`events:` is missing: list the events it listens for.")
    return read


def _compose(text: str) -> list[tuple[_Node, _Node]]:
    """Return the fields of a document as nodes, which know their lines."""
    import yaml  # noqa: PLC0415 (loaded with the first hook)

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        is_open = error.context is not None and ("scanning" in error.context or "flow" in error.context)
        mark = error.context_mark if is_open else error.problem_mark  # where it starts, not the end of the file
        raise _ManifestError(mark.line + 1 if mark else 1, f"this isn't YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise _ManifestError(1, f"this isn't YAML: {str(error).splitlines()[0]}.") from error
    except RecursionError as error:
        raise _ManifestError(1, "it is nested too deeply.") from error
    if root is None:
        return []
    if root.id != "mapping":
        raise _ManifestError(_get_line(root), "this isn't a list of fields (`name: value`).")
    return list(root.value)


def _iterate_fields(nodes: list[tuple[_Node, _Node]]) -> Iterator[tuple[str, _Field]]:
    """Yield each field name with its value."""
    seen: set[str] = set()
    for key, value in nodes:
        name, line = str(key.value), _get_line(key)
        if name not in _PARSERS:
            suggestions = difflib.get_close_matches(name, _PARSERS, n=1)
            hint = f"did you mean `{suggestions[0]}`?" if suggestions else _KNOWN_FIELDS
            raise _ManifestError(line, f"unknown field `{name}`; {hint}")
        if name in seen:
            raise _ManifestError(line, f"`{name}` appears twice.")
        seen.add(name)
        if value.id == "sequence":
            yield name, _Field(line, [_read_scalar(item) for item in value.value], is_list=True)
        else:
            yield name, _Field(line, [_read_scalar(value)])


def _read_scalar(node: _Node) -> tuple[int, str]:
    """Return line and text of a node; text of several lines has no line break at its ends."""
    if node.id != "scalar":
        raise _ManifestError(_get_line(node), "this must be text.")
    return _get_line(node), node.value.strip() if node.style in {"|", ">"} else node.value


def _get_line(node: _Node) -> int:
    return int(node.start_mark.line) + 1


def _summarize(found: Hook | UnusableHook) -> HookSummary:
    if isinstance(found, UnusableHook):
        return HookSummary(name=found.folder.name, state="broken", path=found.folder, problem=found.problem)
    manifest = found.manifest
    return HookSummary(
        name=manifest.name,
        state="on" if manifest.enabled else "off",
        path=found.folder,
        description=manifest.description,
        events=manifest.events,
        run=manifest.run,
        timeout_seconds=manifest.timeout_seconds,
    )


def _iterate_folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(one.parent for one in folder.glob(f"*/{MANIFEST}"))


def _read_hook(folder: Path, names: dict[str, str]) -> Hook | UnusableHook:
    try:
        hook = Hook(folder, read_manifest(folder / MANIFEST))
        _check_name(hook, names)
        _check_handler(hook)
    except BrokenHook as error:
        return UnusableHook(folder, str(error))
    names[hook.manifest.name] = f"the hook in {folder.name}"
    return hook


def _check_name(hook: Hook, names: dict[str, str]) -> None:
    name = hook.manifest.name
    if name in names:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"the name `{name}` is already used by {names[name]}.")


def _check_handler(hook: Hook) -> None:
    """Raise `BrokenHook` unless there is exactly one handler, and it has no obvious error."""
    has_file = hook.handler.is_file()
    if hook.manifest.run and has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"it has both `run:` and a file {HANDLER}; remove one.")
    if not hook.manifest.run and not has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"it has neither `run:` nor a file {HANDLER}.")
    if has_file:
        _check_file(hook.handler)


def _check_file(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise BrokenHook(file, error.lineno or 1, f"{error.msg}.") from error
    except (OSError, ValueError) as error:
        raise BrokenHook(file, 1, f"it can't be read: {error}.") from error
    if not any(_binds_handle(node) for node in ast.walk(tree)):
        raise BrokenHook(file, 1, "it has no function `handle(event, facts)`.")


def _binds_handle(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="handle") | ast.AsyncFunctionDef(name="handle"):
            return True
        case ast.Name(id="handle", ctx=ast.Store()) | ast.alias(name="handle") | ast.alias(asname="handle"):
            return True
    return False
