"""Watch for writes to a file with Linux inotify."""

import ctypes
import os
import select
from pathlib import Path

_MODIFIED = 0x2
_QUEUE_BYTES = 65_536


class InotifyWatch:
    """Watch for writes to a file by any process; raises `OSError` where inotify is unavailable."""

    def __init__(self, path: Path) -> None:
        self._events = _open_queue(path)
        self._wake_reader, self._wake_writer = os.pipe()
        self._poll = select.poll()
        for descriptor in (self._events, self._wake_reader):
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a write, a call of `silence` or the timeout; return whether there was a write."""
        self._poll.poll(seconds * 1000)
        return self.has_changed()

    def has_changed(self) -> bool:
        """Return whether there was a write since the last call."""
        try:
            return bool(os.read(self._events, _QUEUE_BYTES))
        except BlockingIOError:
            return False

    def silence(self) -> None:
        """Make current and later calls of `wait` return immediately."""
        os.write(self._wake_writer, b"\0")

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (self._events, self._wake_reader, self._wake_writer):
            os.close(descriptor)


def _open_queue(path: Path) -> int:
    """Return the descriptor of an inotify queue for a file; raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        queue: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError as error:
        raise OSError("this system has no inotify") from error
    if queue < 0:
        raise _make_error()
    if libc.inotify_add_watch(queue, os.fsencode(path), _MODIFIED) < 0:
        refusal = _make_error()
        os.close(queue)
        raise refusal
    return queue


def _make_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
