"""The events that wait for one hook: handled in order, one at a time, with a bound and a deadline."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from talaria.contracts.hooks import context_of
from talaria.core.session_context import bound
from talaria.core.wording import counted
from talaria.hooks.handlers import CommandFailed, Handler, Happening, Overdue, line_in, named
from talaria.hooks.manifest import BrokenHook
from talaria.hooks.shelf import Hook

MOST_WAITING = 256
_MOST_HANGING = 3
_GRACE = 0.5

log = logging.getLogger(__name__)


class Report(Struct, frozen=True):
    """What became of an event: what the hook printed, and what went wrong, if anything."""

    hook: str
    event: str
    seconds: float
    output: str = ""
    trouble: str = ""


def write_to_log(report: Report) -> None:
    """Log what went wrong."""
    if report.trouble:
        log.warning("hook %s: %s: %s", report.hook, report.event, report.trouble)
    else:
        log.debug("hook %s: %s: handled in %.3f s", report.hook, report.event, report.seconds)


class Line:
    """Threads of its own serve it, so that nothing a hook does holds up a turn, another hook or the end.

    One that does not come back in time is left behind, up to a few of them; then events wait until one does. When
    ``most`` wait, more of them are dropped and counted in ``dropped``.
    """

    def __init__(
        self,
        hook: Hook,
        handler: Handler,
        report: Callable[[Report], None] = write_to_log,
        *,
        most: int = MOST_WAITING,
    ) -> None:
        self.hook = hook
        self.dropped = 0
        self._handler = handler
        self._report = report
        self._most = most
        self._waiting: deque[Happening] = deque()
        self._running: set[int] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._missed = 0
        self._broken = False
        self._closed = False

    def put(self, happening: Happening) -> None:
        """Let an event wait; nothing here takes time."""
        with self._changed:
            if self._closed or self._broken:
                return
            if len(self._waiting) >= self._most:
                self._drop(happening)
                return
            self._waiting.append(happening)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._start(self._serve)

    def finish(self, until: float) -> bool:
        """Wait until all is handled, but no longer than until this moment of the monotonic clock."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Take no more, forget what waits, and end what can be ended."""
        with self._changed:
            self._closed = True
            left = len(self._waiting) + len(self._running)
            self._waiting.clear()
            self._changed.notify_all()
        if left:
            log.warning("hook %s: the program ends before %s handled", self._name, _were(left))
        self._handler.end()

    @property
    def _name(self) -> str:
        return self.hook.manifest.name

    def _is_idle(self) -> bool:
        return not self._waiting and not self._running

    def _drop(self, happening: Happening) -> None:
        self.dropped += 1
        self._missed += 1
        if self._missed == 1:
            log.warning(
                "hook %s: %s is dropped, and so is what follows it: %d events wait already",
                self._name,
                happening.event,
                self._most,
            )

    def _start(self, work: Callable[[], None]) -> threading.Thread | None:
        thread = threading.Thread(target=work, name=f"hook-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("hook %s: no thread could be started for it: %s", self._name, error)
            return None
        return thread

    def _serve(self) -> None:
        number = 0
        while (happening := self._next(number)) is not None:
            self._start_or_forget(number, happening)
            self._await(number, happening)
            number += 1

    def _next(self, number: int) -> Happening | None:
        with self._changed:
            if not self._waiting and self._missed:
                log.warning("hook %s: %s dropped, and it keeps up again", self._name, _were(self._missed))
                self._missed = 0
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._running.add(number)
            return self._waiting.popleft()

    def _start_or_forget(self, number: int, happening: Happening) -> None:
        if self._start(lambda: self._attempt(number, happening)) is None:
            self._done(number)

    def _await(self, number: int, happening: Happening) -> None:
        """Wait for one call, and where too many hang already until one of those is back."""
        seconds = self.hook.manifest.timeout_seconds
        with self._changed:
            if self._changed.wait_for(lambda: number not in self._running, seconds + _GRACE):
                return
        trouble = f"it is not back after {seconds:g} s, and is no longer waited for"
        self._tell(happening, Report(self._name, happening.event, seconds, trouble=trouble))
        with self._changed:
            if len(self._running) >= _MOST_HANGING:
                log.warning("hook %s: %d calls hang; events wait until one is back", self._name, len(self._running))
                self._changed.wait_for(lambda: len(self._running) < _MOST_HANGING or self._closed)

    def _attempt(self, number: int, happening: Happening) -> None:
        began = time.monotonic()
        output, trouble = "", ""
        with bound(context_of(happening.facts)):
            try:
                output = self._handler.handle(happening)
            except BrokenHook as error:
                trouble, self._broken = f"it is not called again: {error}", True
            except (Overdue, CommandFailed) as error:
                trouble = str(error)
            except BaseException as error:  # noqa: BLE001 (whatever a hook does, it ends here)
                folder = self.hook.folder
                trouble = f"{named(error)} ({self.hook.handler.name}, line {line_in(error, folder)})"
        self._tell(happening, Report(self._name, happening.event, time.monotonic() - began, output, trouble))
        self._done(number)

    def _tell(self, happening: Happening, report: Report) -> None:
        with bound(context_of(happening.facts)):
            if not self._closed:
                self._report(report)

    def _done(self, number: int) -> None:
        with self._changed:
            self._running.discard(number)
            if self._broken:
                self._waiting.clear()
            self._changed.notify_all()


def _were(count: int) -> str:
    return f"{counted(count, 'event')} {'was' if count == 1 else 'were'}"
