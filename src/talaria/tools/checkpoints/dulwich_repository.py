"""Snapshots with dulwich, where the Git program is missing; both can use the same repository."""

import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dulwich import gc
from dulwich.errors import NotGitRepository
from dulwich.ignore import IgnoreFilter, IgnoreFilterManager, read_ignore_patterns
from dulwich.index import Index, IndexEntry, commit_tree
from dulwich.object_store import iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo

from talaria.contracts.checkpoints import CheckpointFailed
from talaria.tools.checkpoints.repository import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    FileEntry,
    ScannedState,
    Snapshot,
    SnapshotLimits,
    find_own_excludes,
    raise_too_many,
    remove_stale_locks,
    select_files,
)

_REFS = b"refs/checkpoints/"
_PERSON = "Talaria <talaria@localhost>"
_LOOSE_OBJECTS = 7_000


class DulwichRepository:
    """Implementation of `SnapshotRepository` in Python."""

    def __init__(self, folder: Path, root: Path, limits: SnapshotLimits) -> None:
        self._folder = folder
        self._root = os.fsencode(root)
        self._limits = limits
        self._repo = _open(folder)
        self._until = time.monotonic() + limits.seconds

    def scan(self) -> ScannedState:
        """Save the content of all files that are neither ignored nor too large, and return their tree."""
        index = Index(self._folder / "index")
        known = {path: entry for path, entry in index.items() if isinstance(entry, IndexEntry)}
        found = {*self._walk(), *known}
        if len(found) > self._limits.max_files:
            raise_too_many(Path(os.fsdecode(self._root)), self._limits)
        changed = [path for path in sorted(found) if not self._is_unchanged(path, known.get(path))]
        selected = select_files(self._root, changed, self._limits)
        for path in known.keys() & {*selected.gone, *selected.large, *selected.present}:
            del index[path]
        for path in selected.present:
            entry = self._store(path)
            if entry is not None:
                index[path] = entry
        if changed:
            index.write()
        rows = [(path, entry.sha, entry.mode) for path, entry in index.items() if isinstance(entry, IndexEntry)]
        return ScannedState(commit_tree(self._repo.object_store, rows).decode(), tuple(selected.large))

    def save(self, number: int, tree: str, record: bytes) -> str:
        """Save a snapshot atomically under this number, in place of an earlier one, and return its id."""
        at = int(time.time())
        people = "".join(f"{role} {_PERSON} {at} +0000\n" for role in ("author", "committer"))
        commit = Commit.from_string(f"tree {tree}\n{people}\n".encode() + record)
        self._repo.object_store.add_object(commit)
        self._repo.refs[_make_ref(number)] = commit.id
        return commit.id.decode()

    def list_snapshots(self) -> Sequence[Snapshot]:
        """Return all snapshots by number."""
        found = []
        for ref in sorted(self._repo.refs.keys(base=Ref(_REFS.rstrip(b"/")))):
            commit = self._repo[self._repo.refs[Ref(_REFS + ref)]]
            assert isinstance(commit, Commit)
            found.append(Snapshot(int(ref), commit.id.decode(), commit.tree.decode(), commit.message))
        return found

    def list_files(self, tree: str) -> Mapping[bytes, FileEntry]:
        """Return the files of a tree by path."""
        entries = iter_tree_contents(self._repo.object_store, ObjectID(tree.encode()))
        return {one.path: FileEntry(one.mode, one.sha.decode()) for one in entries if one.path and one.mode and one.sha}

    def read(self, blobs: Collection[str]) -> Mapping[str, bytes]:
        """Return contents by their ids."""
        return {blob: self._repo[ObjectID(blob.encode())].as_raw_string() for blob in blobs}

    def find_ignored(self, paths: Collection[bytes]) -> set[bytes]:
        """Return those of the paths that the rules in the folder exclude now."""
        rules = self._load_rules()
        return {path for path in paths if rules.is_ignored(os.fsdecode(path))}

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove snapshots; their content stays until `compact`."""
        for number in numbers:
            del self._repo.refs[_make_ref(number)]

    def compact(self, *, always: bool) -> None:
        """Free the space of content that no snapshot uses; unless ``always``, only if that is worth its time."""
        if always or self._is_scattered():
            gc.garbage_collect(self._repo, grace_period=None)

    def _is_scattered(self) -> bool:
        """Return whether many objects lie in files of their own."""
        folders = (self._folder / "objects").glob("[0-9a-f][0-9a-f]")
        return sum(len(os.listdir(folder)) for folder in folders) > _LOOSE_OBJECTS

    def close(self) -> None:
        """Close the files of the repository."""
        self._repo.close()

    def _load_rules(self) -> IgnoreFilterManager:
        patterns = [os.fsencode(one) for one in self._limits.exclude]
        own = find_own_excludes(Path(os.fsdecode(self._root)))
        if own is not None:
            with own.open("rb") as file:
                patterns += read_ignore_patterns(file)
        return IgnoreFilterManager(os.fsdecode(self._root), [IgnoreFilter(patterns)], ignorecase=False)

    def _walk(self) -> Iterator[bytes]:
        """Yield the paths of all files that aren't ignored, without nested repositories."""
        rules, pending = self._load_rules(), [b""]
        while pending:
            folder = pending.pop()
            if time.monotonic() > self._until:
                raise CheckpointFailed(
                    f"Reading {os.fsdecode(self._root)} took longer than {self._limits.seconds:g} s, the limit of "
                    "checkpoints.max_seconds."
                )
            yield from self._list_folder(folder, rules, pending)

    def _list_folder(self, folder: bytes, rules: IgnoreFilterManager, pending: list[bytes]) -> Iterator[bytes]:
        try:
            entries = sorted(os.scandir(os.path.join(self._root, folder)), key=lambda one: one.name)
        except OSError:  # unreadable, or deleted since
            return
        if folder and any(one.name == b".git" for one in entries):
            return
        for one in entries:
            path = os.path.join(folder, one.name)
            is_folder = one.is_dir(follow_symlinks=False)
            if one.name == b".git" or rules.is_ignored(os.fsdecode(path) + ("/" if is_folder else "")):
                continue
            if is_folder:
                pending.append(path)
            elif one.is_symlink() or one.is_file():
                yield path

    def _is_unchanged(self, path: bytes, known: IndexEntry | None) -> bool:
        """Return whether a file is as the index says; one that changed together with the index may not be."""
        if known is None:
            return False
        try:
            found = os.lstat(os.path.join(self._root, path))
            indexed = os.stat(self._folder / "index").st_mtime_ns
        except OSError:
            return False
        same = (known.size, _to_nanoseconds(known.mtime), _to_nanoseconds(known.ctime), known.ino, known.mode) == (
            found.st_size & 0xFFFFFFFF, found.st_mtime_ns, found.st_ctime_ns,
            found.st_ino & 0xFFFFFFFF, _find_mode(found),
        )  # fmt: skip
        return same and found.st_mtime_ns < indexed

    def _store(self, path: bytes) -> IndexEntry | None:
        """Save the content of a file; ``None`` if there is none any more."""
        full = os.path.join(self._root, path)
        try:
            found = os.lstat(full)
            if stat.S_ISDIR(found.st_mode):
                return None
            content = os.readlink(full) if stat.S_ISLNK(found.st_mode) else Path(os.fsdecode(full)).read_bytes()
        except OSError:
            return None
        blob = Blob.from_string(content)
        if blob.id not in self._repo.object_store:
            self._repo.object_store.add_object(blob)
        return IndexEntry(
            ctime=divmod(found.st_ctime_ns, 10**9),
            mtime=divmod(found.st_mtime_ns, 10**9),
            dev=found.st_dev & 0xFFFFFFFF,
            ino=found.st_ino & 0xFFFFFFFF,
            mode=_find_mode(found),
            uid=found.st_uid,
            gid=found.st_gid,
            size=found.st_size & 0xFFFFFFFF,
            sha=blob.id,
        )


def _open(folder: Path) -> Repo:
    """Open the repository; a new one is complete before it gets its name."""
    if not folder.is_dir():
        draft = folder.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        Repo.init_bare(draft, mkdir=True).close()
        draft.rename(folder)
    remove_stale_locks(folder)
    try:
        return Repo(str(folder), bare=True)
    except NotGitRepository as error:
        raise CheckpointFailed(
            f"The checkpoints in {folder} are damaged. Delete that folder to start again."
        ) from error


def _make_ref(number: int) -> Ref:
    return Ref(_REFS + f"{number:08}".encode())


def _find_mode(found: os.stat_result) -> int:
    if stat.S_ISLNK(found.st_mode):
        return SYMLINK
    return EXECUTABLE if found.st_mode & stat.S_IXUSR else REGULAR


def _to_nanoseconds(moment: Any) -> int:
    seconds, nanoseconds = moment if isinstance(moment, tuple) else (int(moment), 0)
    return int(seconds) * 10**9 + int(nanoseconds)
