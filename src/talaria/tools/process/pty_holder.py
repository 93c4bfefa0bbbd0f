"""A separate program that holds the terminal of a background process and records how it ended.

It imports nothing of ours, so that it starts fast and stays small: ``pty_holder.py PLACE FOLDER COMMAND…``.
"""

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

_ROWS, _COLUMNS = 40, 120
_CHUNK = 65_536
_END_OF_INPUT = b"\x04"
_CANNOT_RUN = 126


def main(files: str, mask: str, folder: str, command: list[str]) -> None:
    """Run a command on a terminal until it ends."""
    keyboard = os.open(f"{files}/in", os.O_RDWR | os.O_NONBLOCK)  # read and write, so that it never reaches its end
    child, terminal = pty.fork()
    if child == 0:
        _become(mask, folder, command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    signal.signal(signal.SIGUSR1, lambda *_: os.write(terminal, _END_OF_INPUT))
    _note(f"{files}/pid", os.getpid())
    _carry(keyboard, terminal)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    _note(f"{files}/status", code if code >= 0 else 128 - code)


def _note(path: str, number: int) -> None:
    with open(path, "w") as file:  # noqa: PTH123 (pathlib takes longer to load than all the rest)
        file.write(f"{number}\n")


def _become(mask: str, folder: str, command: list[str]) -> None:
    try:
        if mask:
            os.umask(int(mask, 8))
        os.chdir(folder)
        os.execvp(command[0], command)  # noqa: S606 (what to run is the whole purpose)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _carry(keyboard: int, terminal: int) -> None:
    """Copy input to the program and its output to the file, until it closes its terminal."""
    while True:
        ready, _, _ = select.select([keyboard, terminal], [], [])
        if keyboard in ready:
            os.write(terminal, os.read(keyboard, _CHUNK))
        if terminal in ready:
            try:
                shown = os.read(terminal, _CHUNK)
            except OSError as error:
                if error.errno != errno.EIO:  # how Linux reports that the other end is closed
                    raise
                shown = b""
            if not shown:
                return
            os.write(1, shown)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
