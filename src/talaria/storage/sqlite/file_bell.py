"""A bell that the system rings when somebody writes to a file: inotify, which Linux has."""

import ctypes
import os
import select
from pathlib import Path

_MODIFIED = 0x2
_QUEUE = 65_536


class FileBell:
    """Rings when a file is written to, by whomever; raises `OSError` where it cannot."""

    def __init__(self, path: Path) -> None:
        self._events = _watching(path)
        self._silent, self._rope = os.pipe()
        self._poll = select.poll()
        for descriptor in (self._events, self._silent):
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Return when it rings, when it is silenced or when the time is up; tell whether it has rung."""
        self._poll.poll(seconds * 1000)
        return self.has_rung()

    def has_rung(self) -> bool:
        """Tell whether it has rung since that was last asked."""
        try:
            return bool(os.read(self._events, _QUEUE))
        except BlockingIOError:
            return False

    def silence(self) -> None:
        """Let nobody wait for it any more."""
        os.write(self._rope, b"\0")

    def close(self) -> None:
        """Let go of the file."""
        for descriptor in (self._events, self._silent, self._rope):
            os.close(descriptor)


def _watching(path: Path) -> int:
    """Return the descriptor of a queue of what happens to a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        queue: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError as error:
        raise OSError("this system has no inotify") from error
    if queue < 0:
        raise _refusal()
    if libc.inotify_add_watch(queue, os.fsencode(path), _MODIFIED) < 0:
        refusal = _refusal()
        os.close(queue)
        raise refusal
    return queue


def _refusal() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
