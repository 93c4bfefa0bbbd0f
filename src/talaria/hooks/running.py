"""The hooks of a running process: each in a line of its own, told of what happens."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from talaria.contracts.hooks import Emit, Fact, Facts, Hooks, NoHooks
from talaria.hooks.handlers import Happening, make_handler
from talaria.hooks.hearing import Hearing
from talaria.hooks.line import Line
from talaria.hooks.shelf import Hook, look_through

LONGEST_FACT = 4000
_LAST_WORDS = 5.0

log = logging.getLogger(__name__)


def open_hooks(folder: Path, environment: Mapping[str, str]) -> Hooks:
    """Return the hooks below a folder that are switched on; what is wrong with others is logged."""
    lines = []
    for found in look_through(folder):
        if not isinstance(found, Hook):
            log.warning("a hook is left out: %s", found.problem)
        elif found.manifest.enabled:
            lines.append(Line(found, make_handler(found, environment)))
    return RunningHooks(lines) if lines else NoHooks()


class RunningHooks:
    """Implements `Hooks`."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def fire(self, event: str, facts: Facts) -> None:
        """Let the event wait for every hook that listens for it."""
        listening = [line for line in self._lines if line.hook.manifest.hears(event)]
        if listening:
            happening = Happening(event, {name: _bounded(fact) for name, fact in facts.items()})
            for line in listening:
                line.put(happening)

    def overhear(self, emit: Emit) -> Emit:
        """Return what hands events on and tells hooks of turns."""
        return Hearing(emit, self.fire).event

    async def close(self) -> None:
        """Wait a few seconds for all of them together, then leave."""
        await asyncio.to_thread(self._finish, time.monotonic() + _LAST_WORDS)

    def _finish(self, until: float) -> None:
        for line in self._lines:
            line.finish(until)
        for line in self._lines:
            line.close()


def _bounded(fact: Fact) -> Fact:
    if isinstance(fact, str) and len(fact) > LONGEST_FACT:
        return f"{fact[: LONGEST_FACT - 1]}…"
    return fact
