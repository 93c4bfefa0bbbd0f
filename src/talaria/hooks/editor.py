"""Edit the files of hooks, checked before they are saved, and try a hook with a sample event."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

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
    Fact,
    session_facts,
)
from talaria.core.errors import NotFound, Refused
from talaria.core.session_context import SessionContext
from talaria.hooks.discovery import (
    BOOT,
    EVENTS,
    FOLDER,
    HANDLER,
    MANIFEST,
    Hook,
    HookManifest,
    UnusableHook,
    find_hooks,
)
from talaria.hooks.handlers import HookEvent, make_handler
from talaria.hooks.hook_queue import HookQueue, HookReport
from talaria.settings.atomic_files import lock_folder, make_folder, write_file

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
_ENABLED = re.compile(r"(?m)^enabled[ \t]*:.*$")
_SAMPLE_CONTEXT = SessionContext(
    platform="telegram",
    source="telegram",
    chat_id="1000",
    chat_name="Family",
    user_id="1000",
    user_name="Ann",
    session_key="agent:main:telegram:private:1000",
    session_id="sample-session",
    message_id="7",
)
_SAMPLE_TURN = {"turn_id": "sample-turn", "cwd": "."}
_SAMPLE_FACTS: dict[str, dict[str, Fact]] = {
    SESSION_START: {},
    SESSION_END: {"reason": "command"},
    SESSION_RESET: {"reason": "command", "previous_session_id": "session-before"},
    AGENT_START: {**_SAMPLE_TURN, "text": "What is the weather like?"},
    AGENT_STEP: {
        **_SAMPLE_TURN, "step": 2, "kind": "tool", "tool": "web_fetch", "failed": False, "text": "Sunny.",
        "seconds": 0.5,
    },
    TOOL_CALL: {**_SAMPLE_TURN, "tool": "terminal", "kind": "command", "target": "ls", "effect": "irreversible"},
    AGENT_END: {**_SAMPLE_TURN, "outcome": "answered", "text": "It is sunny.", "seconds": 3.2, "steps": 3},
}  # fmt: skip
_SAMPLE_GATEWAY: dict[str, Fact] = {
    "worker": "sample",
    "pid": 1,
    "version": "0",
    "platforms": "telegram",
    "profile": "default",
}


class HookFiles(Struct, frozen=True):
    """The files of a hook: its HOOK.yaml, and its handler.py unless a command handles its events."""

    manifest: str = ""
    handler: str = ""


def read_hook_files(profile_folder: Path, name: str) -> HookFiles:
    """Return the files of the hook in the folder ``name``, or raise `NotFound`."""
    folder = profile_folder / FOLDER / name
    if not _FOLDER_NAME.fullmatch(name) or not (folder / MANIFEST).is_file():
        raise NotFound(f"There is no hook `{name[:64]}`.")
    return HookFiles(_read(folder / MANIFEST), _read(folder / HANDLER))


def write_hook_files(profile_folder: Path, name: str, before: HookFiles, files: HookFiles) -> None:
    """Replace the files of a hook, or create one if ``before`` is empty.

    Raises `Refused` if the new hook is broken, or if the files are no longer those of ``before``.
    """
    if not _FOLDER_NAME.fullmatch(name) or name == BOOT:
        raise Refused("Use at most 64 letters, digits, hyphens and underscores as the name.")
    hooks = profile_folder / FOLDER
    make_folder(hooks)
    with lock_folder(hooks):
        now = HookFiles(_read(hooks / name / MANIFEST), _read(hooks / name / HANDLER))
        if now != before:
            raise Refused(f"The hook {name} was changed in the meantime. Load it again.")
        _check(hooks, name, files)
        make_folder(hooks / name)
        if files.handler:
            write_file(hooks / name / HANDLER, files.handler)
        else:
            (hooks / name / HANDLER).unlink(missing_ok=True)
        write_file(hooks / name / MANIFEST, files.manifest)


def switch_hook(profile_folder: Path, name: str, *, on: bool) -> None:
    """Switch a hook on or off in its HOOK.yaml."""
    files = read_hook_files(profile_folder, name)
    line = f"enabled: {'true' if on else 'false'}"
    if _ENABLED.search(files.manifest):
        manifest = _ENABLED.sub(line, files.manifest, count=1)
    else:
        manifest = f"{files.manifest.rstrip()}\n{line}\n"
    write_hook_files(profile_folder, name, files, HookFiles(manifest, files.handler))


def _check(hooks: Path, name: str, files: HookFiles) -> None:
    """Raise `Refused` unless these files are a hook whose name no other has."""
    with TemporaryDirectory() as trial:
        folder = Path(trial) / name
        folder.mkdir()
        (folder / MANIFEST).write_text(files.manifest, encoding="utf-8")
        if files.handler:
            (folder / HANDLER).write_text(files.handler, encoding="utf-8")
        (found,) = find_hooks(Path(trial))
    if isinstance(found, UnusableHook):
        raise Refused(found.problem.replace(f"{folder}/", ""))
    others = [one for one in find_hooks(hooks) if isinstance(one, Hook) and one.folder.name != name]
    if any(one.manifest.name == found.manifest.name for one in others):
        raise Refused(f"There is another hook with the name {found.manifest.name}.")


def _read(path: Path) -> str:
    """Return the text of a file, empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path.name} can't be read as text.") from error


def pick_sample_event(manifest: HookManifest) -> str:
    """Return the first event that a hook listens for."""
    known = next((event for event in EVENTS if manifest.listens_to(event)), "")
    named = next((pattern for pattern in manifest.events if pattern.startswith(COMMAND)), "")
    return known or named.replace("*", "status")


def make_sample_facts(event: str) -> dict[str, Fact]:
    """Return sample facts of an event, or raise `Refused` if there is no such event."""
    if event == GATEWAY_START:
        return dict(_SAMPLE_GATEWAY)
    if event.startswith(COMMAND) and event != COMMAND:
        return {**session_facts(_SAMPLE_CONTEXT), "command": event.removeprefix(COMMAND), "text": ""}
    if event not in _SAMPLE_FACTS:
        raise Refused(f"There is no event `{event}`. Available: {', '.join(EVENTS)} and {COMMAND}NAME.")
    return {**session_facts(_SAMPLE_CONTEXT), **_SAMPLE_FACTS[event]}


_GRACE = 5.0


def try_hook(hook: Hook, event: str, environment: Mapping[str, str]) -> HookReport:
    """Run a hook with a sample event, by default its first one, and return the report.

    Raises `Refused` if the hook does not listen for the event or could not be started.
    """
    event = event or pick_sample_event(hook.manifest)
    facts = make_sample_facts(event)
    if not hook.manifest.listens_to(event):
        raise Refused(
            f"The hook {hook.manifest.name} doesn't listen for {event}, only for {' '.join(hook.manifest.events)}."
        )
    reports: list[HookReport] = []
    queue = HookQueue(hook, make_handler(hook, environment), reports.append)
    queue.put(HookEvent(event, facts))
    queue.finish(time.monotonic() + hook.manifest.timeout_seconds + _GRACE)
    if not reports:
        raise Refused(f"The hook {hook.manifest.name} couldn't be started.")
    return reports[0]
