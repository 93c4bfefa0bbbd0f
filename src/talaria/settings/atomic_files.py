"""Atomic, private file writes: after a crash either the old or the new file exists."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from talaria.settings.errors import ProfileUnusable

OWNER_ONLY_FILE = 0o600
OWNER_ONLY_FOLDER = 0o700
FileStamp = tuple[int, int, int] | None


def write_file(path: Path, text: str) -> None:
    """Replace the content of ``path`` atomically and durably; a symbolic link is kept."""
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        _write_durably(draft, text.encode())
        draft.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ProfileUnusable(path, "can't be written", error) from error


def read_file(path: Path) -> bytes | None:
    """Return the content of ``path``; ``None`` if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProfileUnusable(path, "can't be read", error) from error


def make_folder(path: Path) -> None:
    """Create ``path`` and missing parents, accessible by the owner only."""
    try:
        if not path.parent.is_dir():
            make_folder(path.parent)
        path.mkdir(OWNER_ONLY_FOLDER, exist_ok=True)
    except OSError as error:
        raise ProfileUnusable(path, "can't be created", error) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock ``folder`` against other processes that use this function; waits for the lock."""
    make_folder(folder)
    handle = _acquire_lock(folder)
    try:
        yield
    finally:
        os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove ``path`` and its content; links are removed, not followed."""
    renamed = path.with_name(f".{path.name}.{os.getpid()}.deleted")
    try:
        path.rename(renamed)
        for parent, folders, files in os.walk(renamed, topdown=False):
            for name in files:
                Path(parent, name).unlink()
            for name in folders:
                _remove_entry(Path(parent, name))
        renamed.rmdir()
    except OSError as error:
        raise ProfileUnusable(path, "can't be removed", error) from error


def read_stamp(path: Path) -> FileStamp:
    """Return what differs after a file was changed: time, size and number; ``None`` if it can't be reached."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _acquire_lock(folder: Path) -> int:
    try:
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise ProfileUnusable(folder, "can't be locked", error) from error
    return handle


def _remove_entry(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        folder.rmdir()


def _write_durably(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY_FILE)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
