"""Dispatcher of events to the hooks of a running process, each with its own queue."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from talaria.contracts.hooks import Fact, Facts, Hooks, NoHooks
from talaria.core.events import TurnEvent
from talaria.hooks.discovery import Hook, find_hooks
from talaria.hooks.handlers import HookEvent, make_handler
from talaria.hooks.hook_queue import HookQueue
from talaria.hooks.turn_events import TurnHookEvents

MAX_FACT_LENGTH = 4000
_CLOSE_SECONDS = 5.0

log = logging.getLogger(__name__)


def open_hooks(folder: Path, environment: Mapping[str, str]) -> Hooks:
    """Return the enabled hooks in a folder; problems of the others are logged."""
    queues = []
    for found in find_hooks(folder):
        if not isinstance(found, Hook):
            log.warning("ignoring a hook: %s", found.problem)
        elif found.manifest.enabled:
            queues.append(HookQueue(found, make_handler(found, environment)))
    return HookDispatcher(queues) if queues else NoHooks()


class HookDispatcher:
    """Implementation of `Hooks`."""

    def __init__(self, queues: Sequence[HookQueue]) -> None:
        self._queues = queues

    def fire(self, event: str, facts: Facts) -> None:
        """Queue an event for every hook that listens for it."""
        listeners = [queue for queue in self._queues if queue.hook.manifest.hears(event)]
        if listeners:
            hook_event = HookEvent(event, {name: _truncate(fact) for name, fact in facts.items()})
            for queue in listeners:
                queue.put(hook_event)

    def turn_subscriber(self) -> Callable[[TurnEvent], None]:
        """Return a subscriber that fires the ``agent:`` events of one open session."""
        return TurnHookEvents(self.fire).on_event

    async def close(self) -> None:
        """Wait up to ``_CLOSE_SECONDS`` for all hooks together, then end what still runs."""
        await asyncio.to_thread(self._finish, time.monotonic() + _CLOSE_SECONDS)

    def _finish(self, until: float) -> None:
        for queue in self._queues:
            queue.finish(until)
        for queue in self._queues:
            queue.close()


def _truncate(fact: Fact) -> Fact:
    if isinstance(fact, str) and len(fact) > MAX_FACT_LENGTH:
        return f"{fact[: MAX_FACT_LENGTH - 1]}…"
    return fact
