"""Write the files of a profile so that a crash leaves either the old or the new one, readable by the owner only."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from talaria.settings.errors import ProfileUnusable

OWNER_ONLY_FILE = 0o600
OWNER_ONLY_FOLDER = 0o700


def write_file(path: Path, text: str) -> None:
    """Replace the content of ``path`` at once and durably; a symbolic link stays one."""
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        _write_durably(draft, text.encode())
        draft.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ProfileUnusable(path, "cannot be written", error) from error


def read_file(path: Path) -> bytes | None:
    """The content of ``path``; None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProfileUnusable(path, "cannot be read", error) from error


def make_folder(path: Path) -> None:
    """Create ``path``, and what is missing above it, for the owner alone."""
    try:
        if not path.parent.is_dir():
            make_folder(path.parent)
        path.mkdir(OWNER_ONLY_FOLDER, exist_ok=True)
    except OSError as error:
        raise ProfileUnusable(path, "cannot be created", error) from error


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Wait until no other process changes files in ``folder`` by this function, and keep others waiting."""
    make_folder(folder)
    handle = _locked(folder)
    try:
        yield
    finally:
        os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove ``path`` with all that is in it; links are removed, not followed."""
    doomed = path.with_name(f".{path.name}.{os.getpid()}.deleted")
    try:
        path.rename(doomed)
        for parent, folders, files in os.walk(doomed, topdown=False):
            for name in files:
                Path(parent, name).unlink()
            for name in folders:
                _remove_entry(Path(parent, name))
        doomed.rmdir()
    except OSError as error:
        raise ProfileUnusable(path, "cannot be removed", error) from error


def _locked(folder: Path) -> int:
    try:
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise ProfileUnusable(folder, "cannot be locked", error) from error
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
