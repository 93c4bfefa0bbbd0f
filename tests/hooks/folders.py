"""Hooks in folders, as somebody would write them."""

import time
from pathlib import Path

from talaria.hooks.handlers import Happening, make_handler
from talaria.hooks.line import MOST_WAITING, Line, Report
from talaria.hooks.shelf import Hook, Unusable, look_through

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
    """Return what is wrong with the only hook there is."""
    (found,) = look_through(hooks)
    assert isinstance(found, Unusable)
    return found.problem


class Watched:
    """The only hook in a folder, in a line of its own whose reports are kept."""

    def __init__(self, hooks: Path, *, most: int = MOST_WAITING, environment: dict[str, str] | None = None) -> None:
        (found,) = look_through(hooks)
        assert isinstance(found, Hook)
        self.reports: list[Report] = []
        self.line = Line(found, make_handler(found, environment or {}), self.reports.append, most=most)

    def tell(self, event: str, **facts: str | int) -> None:
        self.line.put(Happening(event, dict(facts)))

    def finish(self, seconds: float = 20) -> bool:
        return self.line.finish(time.monotonic() + seconds)

    def handled(self, event: str = "agent:end", **facts: str | int) -> Report:
        """Let the hook handle one event, and return what became of it."""
        self.tell(event, **facts)
        assert self.finish()
        return self.reports[-1]
