"""Hook folders for tests."""

import json
import time
from pathlib import Path

from talaria.hooks.discovery import Hook, UnusableHook, find_hooks
from talaria.hooks.handlers import HookEvent, make_handler
from talaria.hooks.hook_queue import MAX_WAITING, HookQueue, HookReport
from talaria.testing.wait import LIMIT, until

ALL = "events: ['*']\n"
NOTES = """\
import json
from pathlib import Path

def handle(event, facts):
    with Path(__file__).with_name("notes").open("a") as notes:
        notes.write(json.dumps([event, facts]) + "\\n")
"""


def write_hook(hooks: Path, name: str, manifest: str = ALL, handler: str = NOTES) -> Path:
    """Write a hook and return its folder; one without a handler has a command in its manifest."""
    folder = hooks / name
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text(manifest)
    if handler:
        (folder / "handler.py").write_text(handler)
    return folder


def problem(hooks: Path) -> str:
    """Return the problem of the only hook in a folder."""
    (found,) = find_hooks(hooks)
    assert isinstance(found, UnusableHook)
    return found.problem


class RecordedHook:
    """The only hook in a folder, with its queue and recorded reports."""

    def __init__(self, hooks: Path, *, most: int = MAX_WAITING, environment: dict[str, str] | None = None) -> None:
        (found,) = find_hooks(hooks)
        assert isinstance(found, Hook)
        self.reports: list[HookReport] = []
        self.queue = HookQueue(found, make_handler(found, environment or {}), self.reports.append, most=most)

    def put(self, event: str, **facts: str | int) -> None:
        self.queue.put(HookEvent(event, dict(facts)))

    def finish(self, seconds: float = LIMIT) -> bool:
        return self.queue.finish(time.monotonic() + seconds)

    def handled(self, event: str = "agent:end", **facts: str | int) -> HookReport:
        """Let the hook handle one event, and return its report."""
        self.put(event, **facts)
        assert self.finish()
        return self.reports[-1]


def notes(folder: Path) -> list[tuple[str, dict[str, object]]]:
    """Return the events that the hook in a folder has recorded so far."""
    file = folder / "notes"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


async def wait_for_notes(folder: Path, event: str, *, times: int = 1) -> list[dict[str, object]]:
    """Wait until a hook has recorded an event this many times, and return the facts."""

    def found() -> list[dict[str, object]]:
        return [facts for name, facts in notes(folder) if name == event]

    await until(lambda: len(found()) >= times)
    return found()
