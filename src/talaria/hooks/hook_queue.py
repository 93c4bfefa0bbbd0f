"""Queue of one hook: events handled in order, one at a time, with a capacity and a timeout."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from talaria.contracts.hooks import context_from_facts
from talaria.core.formatting import pluralize
from talaria.core.session_context import bound
from talaria.hooks.discovery import BrokenHook, Hook
from talaria.hooks.handlers import CommandFailed, Handler, HookEvent, HookTimeout, find_error_line, format_error

MAX_WAITING = 256
_MAX_HANGING = 3
_GRACE = 0.5

log = logging.getLogger(__name__)


class HookReport(Struct, frozen=True):
    """Report on a handled event: the hook's output, and the problem, if any."""

    hook: str
    event: str
    seconds: float
    output: str = ""
    trouble: str = ""


def log_report(report: HookReport) -> None:
    """Log a report, as a warning if there was a problem."""
    if report.trouble:
        log.warning("hook %s: %s: %s", report.hook, report.event, report.trouble)
    else:
        log.debug("hook %s: %s: handled in %.3f s", report.hook, report.event, report.seconds)


class HookQueue:
    """Queue of one hook, served by its own threads so that a hook cannot block anything else.

    A call that does not return in time is abandoned; once ``_MAX_HANGING`` calls hang, events wait until one returns.
    When ``most`` events are pending, further ones are dropped and counted in ``dropped``.
    """

    def __init__(
        self,
        hook: Hook,
        handler: Handler,
        report: Callable[[HookReport], None] = log_report,
        *,
        most: int = MAX_WAITING,
    ) -> None:
        self.hook = hook
        self.dropped = 0
        self._handler = handler
        self._report = report
        self._capacity = most
        self._waiting: deque[HookEvent] = deque()
        self._running: set[int] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._dropped_in_row = 0
        self._broken = False
        self._closed = False

    def put(self, hook_event: HookEvent) -> None:
        """Add an event without blocking; drop it if the queue is full, closed or its hook broken."""
        with self._changed:
            if self._closed or self._broken:
                return
            if len(self._waiting) >= self._capacity:
                self._drop(hook_event)
                return
            self._waiting.append(hook_event)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._start(self._serve)

    def finish(self, until: float) -> bool:
        """Wait until all events are handled, at most until this monotonic time; return whether they are."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Accept no more events, discard pending ones, and end the running call if possible."""
        with self._changed:
            self._closed = True
            left = len(self._waiting) + len(self._running)
            self._waiting.clear()
            self._changed.notify_all()
        if left:
            log.warning("hook %s: the program stops before %s handled", self._name, _format_count(left))
        self._handler.end()

    @property
    def _name(self) -> str:
        return self.hook.manifest.name

    def _is_idle(self) -> bool:
        return not self._waiting and not self._running

    def _drop(self, hook_event: HookEvent) -> None:
        self.dropped += 1
        self._dropped_in_row += 1
        if self._dropped_in_row == 1:
            log.warning(
                "hook %s: dropping %s and later events: %d events are already waiting",
                self._name,
                hook_event.event,
                self._capacity,
            )

    def _start(self, work: Callable[[], None]) -> threading.Thread | None:
        thread = threading.Thread(target=work, name=f"hook-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("hook %s: couldn't start a thread: %s", self._name, error)
            return None
        return thread

    def _serve(self) -> None:
        number = 0
        while (hook_event := self._take_next(number)) is not None:
            self._start_attempt(number, hook_event)
            self._wait_for_attempt(number, hook_event)
            number += 1

    def _take_next(self, number: int) -> HookEvent | None:
        with self._changed:
            if not self._waiting and self._dropped_in_row:
                log.warning(
                    "hook %s: %s dropped; the queue has room again", self._name, _format_count(self._dropped_in_row)
                )
                self._dropped_in_row = 0
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._running.add(number)
            return self._waiting.popleft()

    def _start_attempt(self, number: int, hook_event: HookEvent) -> None:
        if self._start(lambda: self._run_handler(number, hook_event)) is None:
            self._finish_attempt(number)

    def _wait_for_attempt(self, number: int, hook_event: HookEvent) -> None:
        """Wait for one call; if it hangs and too many do, wait until one of them returns."""
        seconds = self.hook.manifest.timeout_seconds
        with self._changed:
            if self._changed.wait_for(lambda: number not in self._running, seconds + _GRACE):
                return
        trouble = f"it didn't return within {seconds:g} s and is no longer waited for"
        self._send_report(hook_event, HookReport(self._name, hook_event.event, seconds, trouble=trouble))
        with self._changed:
            if len(self._running) >= _MAX_HANGING:
                log.warning("hook %s: %d calls hang; events wait until one returns", self._name, len(self._running))
                self._changed.wait_for(lambda: len(self._running) < _MAX_HANGING or self._closed)

    def _run_handler(self, number: int, hook_event: HookEvent) -> None:
        began = time.monotonic()
        output, trouble = "", ""
        with bound(context_from_facts(hook_event.facts)):
            try:
                output = self._handler.handle(hook_event)
            except BrokenHook as error:
                trouble, self._broken = f"it won't be called again: {error}", True
            except (HookTimeout, CommandFailed) as error:
                trouble = str(error)
            except BaseException as error:  # noqa: BLE001 (no error of a hook may get further)
                folder = self.hook.folder
                trouble = f"{format_error(error)} ({self.hook.handler.name}, line {find_error_line(error, folder)})"
        self._send_report(
            hook_event, HookReport(self._name, hook_event.event, time.monotonic() - began, output, trouble)
        )
        self._finish_attempt(number)

    def _send_report(self, hook_event: HookEvent, report: HookReport) -> None:
        with bound(context_from_facts(hook_event.facts)):
            if not self._closed:
                self._report(report)

    def _finish_attempt(self, number: int) -> None:
        with self._changed:
            self._running.discard(number)
            if self._broken:
                self._waiting.clear()
            self._changed.notify_all()


def _format_count(count: int) -> str:
    return f"{pluralize(count, 'event')} {'was' if count == 1 else 'were'}"
