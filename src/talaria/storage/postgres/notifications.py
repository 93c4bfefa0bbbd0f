"""Notifications between processes on one server, received by LISTEN on a separate connection."""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

import psycopg
from psycopg import sql

from talaria.storage.async_store import Deliver
from talaria.storage.postgres.connection import NotificationChannel
from talaria.storage.tables.sql import Row

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_MAX_PAUSE = 5.0


class PostgresListener:
    """`NotificationListener` implementation with one thread, connected only while there are subscriptions.

    Reconnects after errors, with pauses that grow from 0.1 to 5 seconds.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Row]], channel: NotificationChannel) -> None:
        self._connect = connect
        self._channel = channel
        self._lock = threading.Lock()
        self._wake_socket = _WakeSocket()
        self._deliver: Deliver | None = None
        self._is_announced = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def listen(self, deliver: Deliver) -> None:
        """Start listening; starts the thread on the first call."""
        with self._lock:
            self._deliver = deliver
            self._is_announced = False
            self._wake_socket.wake()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="store-notifications", daemon=True)
                self._thread.start()

    def stop_listening(self) -> None:
        """Stop listening and close the connection."""
        with self._lock:
            self._deliver = None
            self._wake_socket.wake()

    def close(self) -> None:
        """Stop listening and wait for the thread to end."""
        with self._lock:
            self._closed = True
            self._deliver = None
            self._wake_socket.wake()
        if self._thread is not None:
            self._thread.join()
        self._wake_socket.close()

    def _serve(self) -> None:
        pause = _FIRST_PAUSE
        while self._wait_until_needed():
            started = time.monotonic()
            try:
                with closing(self._connect()) as raw:
                    self._receive(raw)
            except psycopg.Error as error:
                log.debug("can't receive notifications from other processes: %s", error)
                pause = _FIRST_PAUSE if time.monotonic() - started > _MAX_PAUSE else pause
                self._sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)

    def _wait_until_needed(self) -> bool:
        """Wait until there are subscriptions; ``False`` once the listener is closed."""
        while not self._closed:
            if self._deliver is not None:
                return True
            self._wake_socket.wait()
        return False

    def _receive(self, raw: psycopg.Connection[Row]) -> None:
        """Receive notifications until there are no subscriptions."""
        raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel.name)))
        self._is_announced = False
        while (deliver := self._deliver) is not None:
            if not self._is_announced:
                self._is_announced = True
                deliver(None)  # earlier notifications were not received
            topics = [self._channel.decode_payload(notice.payload) for notice in raw.notifies(timeout=0)]
            notified = {topic: 0 for topic in topics if topic is not None}
            if notified:
                deliver(notified)
            self._wake_socket.wait(None, raw.fileno())

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closed and (remaining := until - time.monotonic()) > 0:
            self._wake_socket.wait(remaining)


class _WakeSocket:
    """Socket pair that wakes a thread, which may wait for other sockets at the same time."""

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)  # noqa: FBT003 (takes no keyword)
        self._receiver.setblocking(False)  # noqa: FBT003 (takes no keyword)

    def wake(self) -> None:
        with suppress(OSError):  # closed, or full, which also wakes the thread
            self._sender.send(b"\0")

    def wait(self, seconds: float | None = None, *sockets: int) -> None:
        """Return when woken, when a socket is readable, or after ``seconds``."""
        poll = select.poll()
        for descriptor in (self._receiver.fileno(), *sockets):
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)
        with suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()
