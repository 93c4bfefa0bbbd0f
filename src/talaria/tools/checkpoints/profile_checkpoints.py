"""Checkpoints of all workspaces of a profile."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.contracts.checkpoints import CheckpointFailed, WorkspaceSummary
from talaria.tools.checkpoints.history import Retention, WorkspaceHistory
from talaria.tools.checkpoints.repository import SnapshotLimits, SnapshotRepository

_ROOT_FILE = "workspace"
_NAME_LENGTH = 20
_NEITHER = "Checkpoints need Git: install it, or run `{command}`."


class CheckpointOptions(Struct, frozen=True, kw_only=True):
    """Location and limits of checkpoints.

    ``private`` are folders of Talaria that are never recorded; ``path`` is where programs are searched for, and
    ``install`` returns the command that installs the replacement of Git.
    """

    folder: Path
    home: Path
    path: str
    private: tuple[Path, ...] = ()
    limits: SnapshotLimits = SnapshotLimits()
    retention: Retention = Retention()
    install: Callable[[], str] = str
    engine: Literal["auto", "git", "dulwich"] = "auto"


class ProfileCheckpoints:
    """Implementation of `Checkpoints`: one repository for each workspace."""

    def __init__(self, options: CheckpointOptions) -> None:
        self._options = options

    def open(self, folder: Path, began_in: Path | None = None) -> WorkspaceHistory:
        """Return the history of the workspace of a folder; raises `CheckpointFailed` if it can't have one.

        The workspace is the Git repository around the folder, else ``began_in`` if the folder is inside of it, else the
        folder itself.
        """
        return self._open_root(self.find_root(folder, began_in) or Path(os.path.realpath(folder)))

    def find_root(self, folder: Path, began_in: Path | None) -> Path | None:
        """Return the workspace of a folder; ``None`` if it is neither in ``began_in`` nor in a Git repository."""
        real = Path(os.path.realpath(folder))
        home = Path(os.path.realpath(self._options.home))
        for candidate in (real, *real.parents):
            if candidate == home or home.is_relative_to(candidate):
                break
            if (candidate / ".git").exists():
                return candidate
        start = Path(os.path.realpath(began_in)) if began_in is not None else real
        return start if real.is_relative_to(start) else None

    def workspaces(self) -> Sequence[WorkspaceSummary]:
        """Return all workspaces with checkpoints, by folder."""
        found = []
        for folder, root in self._list_repositories():
            listed = self._make_history(folder, root).list()
            if listed:
                size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                found.append(WorkspaceSummary(str(root), len(listed), listed[0].at, size))
        return sorted(found, key=lambda one: one.folder)

    def prune(self, *, everything: bool = False, folder: Path | None = None) -> int:
        """Delete expired checkpoints, or ``everything``, and return their number; by default in all workspaces."""
        only = self.find_root(folder, None) if folder is not None else None
        removed = 0
        for repository, root in self._list_repositories():
            if folder is None or root == only:
                history = self._make_history(repository, root)
                removed += history.prune(everything=everything or not root.is_dir())
                if not history.list():
                    shutil.rmtree(repository, ignore_errors=True)
        return removed

    def _open_root(self, root: Path) -> WorkspaceHistory:
        home = Path(os.path.realpath(self._options.home))
        if home.is_relative_to(root):
            name = "your home folder" if root == home else f"{root}, which contains your home folder,"
            raise CheckpointFailed(
                f"No checkpoints in {name}: it has too many other files. Start in a project folder to have them."
            )
        if any(root.is_relative_to(os.path.realpath(private)) for private in self._options.private):
            raise CheckpointFailed("No checkpoints in Talaria's own folder.")
        if not root.is_dir():
            raise CheckpointFailed(f"There is no folder {root}.")
        repository_folder = self._options.folder / hashlib.sha256(os.fsencode(root)).hexdigest()[:_NAME_LENGTH]
        if not (repository_folder / _ROOT_FILE).exists():
            self._remember(repository_folder, root)
            self._remove_unused()
        return self._make_history(repository_folder, root)

    def _remember(self, folder: Path, root: Path) -> None:
        """Note which workspace a repository is for."""
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            (folder / _ROOT_FILE).write_bytes(os.fsencode(root))
        except OSError as error:
            raise CheckpointFailed(f"Checkpoints can't be stored in {folder}: {error.strerror}.") from error

    def _remove_unused(self) -> None:
        """Remove the repositories of workspaces in which nothing was recorded since checkpoints expire."""
        oldest = time.time() - self._options.retention.age.total_seconds()
        for folder, _ in self._list_repositories():
            with suppress(OSError):
                if (folder / "git" / "refs" / "checkpoints").stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)

    def _list_repositories(self) -> list[tuple[Path, Path]]:
        found = []
        with suppress(FileNotFoundError):
            for folder in self._options.folder.iterdir():
                with suppress(OSError):
                    found.append((folder, Path(os.fsdecode((folder / _ROOT_FILE).read_bytes()))))
        return found

    def _make_history(self, folder: Path, root: Path) -> WorkspaceHistory:
        return WorkspaceHistory(folder, root, partial(self._open_repository, folder, root), self._options.retention)

    def _open_repository(self, folder: Path, root: Path, lock: int) -> SnapshotRepository:
        options = self._options
        inside = [os.path.realpath(one) for one in options.private]
        excluded = [f"/{os.path.relpath(one, root)}" for one in inside if Path(one).is_relative_to(root)]
        limits = SnapshotLimits(
            max_files=options.limits.max_files,
            max_file_bytes=options.limits.max_file_bytes,
            max_new_bytes=options.limits.max_new_bytes,
            seconds=options.limits.seconds,
            exclude=(*options.limits.exclude, *excluded),
        )
        program = shutil.which("git", path=options.path) if options.engine != "dulwich" else None
        if program is not None:
            from talaria.tools.checkpoints.git_repository import GitRepository  # noqa: PLC0415 (loaded with the first checkpoint)

            return GitRepository(program, folder / "git", root, limits, path=options.path, inherit=lock)
        if find_spec("dulwich") is None:
            raise CheckpointFailed(_NEITHER.format(command=options.install()))
        from talaria.tools.checkpoints.dulwich_repository import DulwichRepository  # noqa: PLC0415 (loaded where Git is missing)

        return DulwichRepository(folder / "git", root, limits)
