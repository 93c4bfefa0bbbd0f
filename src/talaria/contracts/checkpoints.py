"""Checkpoints: states of a workspace's files, recorded before the agent changes them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from talaria.core.errors import TalariaError


class CheckpointFailed(TalariaError):
    """A checkpoint couldn't be taken, read or restored; the message gives the reason and what to do."""

    public = "I couldn't save or restore the state of the files."


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A recorded state; ``number`` counts back from the newest, which is 1.

    ``label`` is what the turn was about to do. ``skipped`` are files that are too large to be recorded.
    """

    number: int
    id: str
    at: datetime
    label: str
    session_id: str = ""
    turn_id: str = ""
    skipped: tuple[str, ...] = ()


class ChangedFile(Struct, frozen=True):
    """A file that differs from a checkpoint; ``diff`` is empty if it isn't text."""

    path: str
    change: str
    diff: str = ""


class RestorePlan(Struct, frozen=True, kw_only=True):
    """Effect of restoring a checkpoint now.

    ``written`` and ``removed`` are paths. ``edited`` are those of them that something other than the agent's calls has
    changed since. ``unsaved`` aren't recorded anywhere, for example because they are too large: they stay.
    """

    checkpoint: Checkpoint
    written: tuple[str, ...]
    removed: tuple[str, ...]
    edited: tuple[str, ...]
    unsaved: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the files already are as they were."""
        return not (self.written or self.removed)


class RestoreResult(Struct, frozen=True, kw_only=True):
    """Restored paths; ``kept`` files were left as they are."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


class WorkspaceSummary(Struct, frozen=True):
    """A workspace with checkpoints: the number of those, the time of the newest, the disk space in bytes."""

    folder: str
    checkpoints: int
    newest: datetime
    bytes: int


class CheckpointHistory(Protocol):
    """Checkpoints of one workspace. All methods block; errors are `CheckpointFailed` and `NotFound`."""

    root: Path

    def list(self) -> Sequence[Checkpoint]:
        """Return the checkpoints, newest first."""

    def find(self, name: str) -> Checkpoint:
        """Return the checkpoint with this number, or whose id starts like this; raises `NotFound`."""

    def diff(self, checkpoint: Checkpoint) -> Sequence[ChangedFile]:
        """Return what has changed since a checkpoint, by path."""

    def plan(self, checkpoint: Checkpoint) -> RestorePlan:
        """Return what `restore` would do now."""

    def restore(self, checkpoint: Checkpoint, *, keep: Collection[str] = (), overwrite: bool = False) -> RestoreResult:
        """Restore the files, except those in ``keep``; the present state becomes a checkpoint first.

        Raises `EditedSince` if files were edited since that are not in ``keep``, unless ``overwrite``.
        """


class EditedSince(CheckpointFailed):
    """Restoring would overwrite edits that the agent didn't make."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"These files were edited since, and not by the agent: {', '.join(paths)}.")
        self.paths = tuple(paths)


class Checkpoints(Protocol):
    """Checkpoints of all workspaces of a profile."""

    def open(self, folder: Path) -> CheckpointHistory:
        """Return the history of the workspace of a folder; raises `CheckpointFailed` if it can't have one."""

    def workspaces(self) -> Sequence[WorkspaceSummary]:
        """Return all workspaces with checkpoints, by folder."""

    def prune(self, *, everything: bool = False, folder: Path | None = None) -> int:
        """Delete expired checkpoints, or ``everything``, and return their number; by default in all workspaces."""
