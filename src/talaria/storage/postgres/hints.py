"""Hints between processes on one server: NOTIFY on a connection of its own, which listens while somebody heeds."""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256

import psycopg
from psycopg import sql

from talaria.storage.sql import Row

log = logging.getLogger(__name__)

_GATHERING = 0.003  # seconds in which hints of one topic become one
_LINGER = 5.0  # seconds that a connection waits for another hint to carry
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


def channel_of(schema: str) -> str:
    """Return the channel of a schema, which may be too long itself; a server keeps those of its databases apart."""
    return f"talaria_{sha256(schema.encode()).hexdigest()[:24]}"


class NotifyCourier:
    """Implements `Courier` with one thread, which sleeps without a connection while there is nothing to do."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Row]], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._lock = threading.Lock()
        self._bell = _Bell()
        self._heard: Callable[[str | None], None] | None = None
        self._greeted = False
        self._waiting: set[str] = set()
        self._lingers_until = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    def attend(self, heard: Callable[[str | None], None]) -> None:
        """Listen from now on."""
        with self._lock:
            self._heard = heard
            self._greeted = False
            self._wake()

    def leave(self) -> None:
        """Listen no more."""
        with self._lock:
            self._heard = None
            self._bell.ring()

    def carry(self, topic: str) -> None:
        """Notify others in a few milliseconds."""
        with self._lock:
            if not self._closed and topic not in self._waiting:
                self._waiting.add(topic)
                self._wake()

    def close(self) -> None:
        """Carry what waits, if the server can be reached, and end."""
        with self._lock:
            self._closed = True
            self._heard = None
            self._bell.ring()
        if self._thread is not None:
            self._thread.join()
        self._bell.close()

    def _wake(self) -> None:
        self._bell.ring()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._serve, name="store-hints", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        pause = _FIRST_PAUSE
        while self._is_needed():
            raw: psycopg.Connection[Row] | None = None
            begun = time.monotonic()
            try:
                raw = self._connect()
                with closing(raw):
                    self._converse(raw)
            except psycopg.Error as error:
                log.debug("hints of other processes are not heard: %s", error)
                if raw is None:
                    self._take_waiting()  # lost
                pause = _FIRST_PAUSE if time.monotonic() - begun > _LONGEST_PAUSE else pause
                self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _is_needed(self) -> bool:
        """Wait until there is something to do; ``False`` at the end."""
        while True:
            with self._lock:
                if self._heard is not None or self._waiting:
                    return True
                if self._closed:
                    return False
            self._bell.wait()

    def _converse(self, raw: psycopg.Connection[Row]) -> None:
        """Listen and notify until there is nothing more to do."""
        listening, self._greeted, seconds = False, False, None
        while seconds != 0:
            heard = self._heard
            if heard is not None and not self._greeted:
                if not listening:
                    raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    listening = True
                self._greeted = True
                heard(None)  # whatever was hinted until now did not get here
            self._notify(raw)
            self._tell(raw)
            seconds = self._seconds_to_stay()
            self._bell.wait(seconds, raw.fileno())

    def _seconds_to_stay(self) -> float | None:
        """Return for how long this connection is of use if nothing comes; ``None`` is for ever, 0 no longer."""
        with self._lock:
            if self._heard is not None or self._waiting:
                return None
            return 0 if self._closed else max(0, self._lingers_until - time.monotonic())

    def _notify(self, raw: psycopg.Connection[Row]) -> None:
        if not self._waiting:
            return
        time.sleep(_GATHERING)
        topics = self._take_waiting()
        raw.execute("SELECT pg_notify(%s, topic) FROM unnest(%s::text[]) AS topic", (self._channel, topics))

    def _take_waiting(self) -> list[str]:
        with self._lock:
            taken, self._waiting = self._waiting, set()
            self._lingers_until = time.monotonic() + _LINGER
        return sorted(taken)

    def _tell(self, raw: psycopg.Connection[Row]) -> None:
        """Tell of what has come in; one's own hints were heeded when they were given."""
        for notice in raw.notifies(timeout=0):
            heard = self._heard
            if heard is not None and notice.pid != raw.info.backend_pid:
                heard(notice.payload)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closed and (left := until - time.monotonic()) > 0:
            self._bell.wait(left)


class _Bell:
    """Wakes a thread that waits for it, or for sockets beside it."""

    def __init__(self) -> None:
        self._rope, self._clapper = socket.socketpair()
        self._rope.setblocking(False)
        self._clapper.setblocking(False)

    def ring(self) -> None:
        with suppress(OSError):  # it rings already, or hangs no more
            self._rope.send(b"\0")

    def wait(self, seconds: float | None = None, *sockets: int) -> None:
        """Return when the bell rings, a socket can be read, or the time is up."""
        poll = select.poll()
        for descriptor in (self._clapper.fileno(), *sockets):
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)
        with suppress(BlockingIOError):
            self._clapper.recv(4096)

    def close(self) -> None:
        self._rope.close()
        self._clapper.close()
