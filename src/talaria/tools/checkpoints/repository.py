"""Repositories of snapshots: what the Git program and dulwich both do, and their limits."""

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from talaria.contracts.checkpoints import CheckpointFailed

SYMLINK, EXECUTABLE, REGULAR = 0o120000, 0o100755, 0o100644
_GIT_EXCLUDES = Path(".git") / "info" / "exclude"


class SnapshotLimits(Struct, frozen=True, kw_only=True):
    """Limits of one snapshot; ``exclude`` are patterns as in ``.gitignore``."""

    max_files: int = 50_000
    max_file_bytes: int = 5_000_000
    max_new_bytes: int = 500_000_000
    seconds: float = 20.0
    exclude: tuple[str, ...] = ()


class FileEntry(Struct, frozen=True):
    """A file in a snapshot: its Git mode, and the id of its content."""

    mode: int
    blob: str


class Snapshot(Struct, frozen=True):
    """A saved snapshot with its number, and the record that was saved with it."""

    number: int
    id: str
    tree: str
    record: bytes


class ScannedState(Struct, frozen=True):
    """The present state of the files; ``skipped`` are those too large to be saved."""

    tree: str
    skipped: tuple[bytes, ...]


class SnapshotRepository(Protocol):
    """Snapshots of one folder in a Git repository outside of it; the folder's own ``.git`` is never used.

    The caller holds the lock of the repository. Failures are `CheckpointFailed`.
    """

    def scan(self) -> ScannedState:
        """Save the content of all files that are neither ignored nor too large, and return their tree."""

    def save(self, number: int, tree: str, record: bytes) -> str:
        """Save a snapshot atomically under this number, in place of an earlier one, and return its id."""

    def list_snapshots(self) -> Sequence[Snapshot]:
        """Return all snapshots by number."""

    def list_files(self, tree: str) -> Mapping[bytes, FileEntry]:
        """Return the files of a tree by path."""

    def read(self, blobs: Collection[str]) -> Mapping[str, bytes]:
        """Return contents by their ids."""

    def find_ignored(self, paths: Collection[bytes]) -> set[bytes]:
        """Return those of the paths that the rules in the folder exclude now."""

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove snapshots; their content stays until `compact`."""

    def compact(self, *, always: bool) -> None:
        """Free the space of content that no snapshot uses; unless ``always``, only if that is worth its time."""

    def close(self) -> None:
        """Close the files of the repository."""


class SelectedFiles(Struct, frozen=True):
    """Changed paths, sorted out: files to save, paths that aren't files of the workspace any more, too large files."""

    present: list[bytes]
    gone: list[bytes]
    large: list[bytes]


def select_files(root: bytes, paths: Iterable[bytes], limits: SnapshotLimits) -> SelectedFiles:
    """Sort out changed paths; raises `CheckpointFailed` if there is too much new content.

    Special files, unreadable files and nested repositories, whose paths end with a slash, are left out.
    """
    selected, size = SelectedFiles([], [], []), 0
    folders: dict[bytes, bool] = {}
    for path in paths:
        folder = os.path.dirname(path)
        if folder not in folders:
            folders[folder] = os.path.realpath(os.path.join(root, folder)) == os.path.join(root, folder).rstrip(b"/")
        full = os.path.join(root, path)
        found = _lstat(full) if folders[folder] else None
        if path.endswith(b"/"):
            continue
        if found is None or stat.S_ISDIR(found.st_mode):
            selected.gone.append(path)
        elif stat.S_ISREG(found.st_mode) and found.st_size > limits.max_file_bytes:
            selected.large.append(path)
        elif stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and os.access(full, os.R_OK)):
            size += found.st_size
            selected.present.append(path)
    if size > limits.max_new_bytes:
        raise CheckpointFailed(
            f"{os.fsdecode(root)} has {size // 1_000_000:,} MB of new content, more than checkpoints.max_megabytes. "
            "List large folders in .gitignore or in checkpoints.exclude."
        )
    return selected


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def raise_too_many(root: Path, limits: SnapshotLimits) -> None:
    """Raise the error for a workspace with too many files."""
    raise CheckpointFailed(
        f"{root} has more than {limits.max_files:,} files, the limit of checkpoints.max_files. List generated folders "
        "in .gitignore or in checkpoints.exclude, or raise the limit."
    )


def remove_stale_locks(folder: Path) -> None:
    """Remove locks that killed processes left in a repository; the caller holds the lock that protects it."""
    for lock in (*folder.glob("*.lock"), *(folder / "refs" / "checkpoints").glob("*.lock")):
        lock.unlink(missing_ok=True)


def find_own_excludes(root: Path) -> Path | None:
    """Return the file with the private exclusions of the workspace's own Git repository, if there is one."""
    path = root / _GIT_EXCLUDES
    return path if path.is_file() else None
