"""History of one workspace: checkpoints, what changed since, and restoring."""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkstemp
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.checkpoints import (
    ChangedFile,
    Checkpoint,
    CheckpointFailed,
    EditedSince,
    RestorePlan,
    RestoreResult,
)
from talaria.core.errors import NotFound
from talaria.core.files import INHERIT, person_umask
from talaria.core.text_diff import diff_texts
from talaria.tools.checkpoints.repository import (
    EXECUTABLE,
    SYMLINK,
    FileEntry,
    ScannedState,
    Snapshot,
    SnapshotRepository,
)

_LOCK_PAUSE = 0.02
_MAX_SKIPPED = 200
_MAX_LABEL = 200
_ID_LENGTH = 10
_USUAL_MASK = 0o022
SnapshotKind = Literal["checkpoint", "agent", "edit"]
RepositoryOpener = Callable[[int], SnapshotRepository]


class SnapshotRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts saved with a snapshot.

    ``checkpoint`` is a state to return to; ``agent`` is the state that a call has left; ``edit`` is a state that
    something else has left, found before another call of the same turn.
    """

    kind: SnapshotKind
    at: datetime
    label: str = ""
    session_id: str = ""
    turn_id: str = ""
    skipped: tuple[str, ...] = ()


class Retention(Struct, frozen=True, kw_only=True):
    """Number and age of the checkpoints of a workspace that stay, and the time to wait for another process."""

    checkpoints: int = 100
    age: timedelta = timedelta(days=30)
    lock_seconds: float = 20.0


class _Recorded(Struct, frozen=True):
    snapshot: Snapshot
    record: SnapshotRecord


class WorkspaceHistory:
    """Implementation of `CheckpointHistory`; ``folder`` is the folder of its repository.

    Each operation holds the lock of the repository, in any number of processes. The lock ends with its holder, and with
    the child processes of that, so a killed process leaves nothing behind.
    """

    def __init__(self, folder: Path, root: Path, open_repository: RepositoryOpener, retention: Retention) -> None:
        self.root = root
        self._folder = folder
        self._open_repository = open_repository
        self._retention = retention

    def record_before(self, label: str, session_id: str, turn_id: str) -> None:
        """Take a checkpoint for the first call of a turn; for later ones, record edits made in between."""
        with self._lock_repository() as repository:
            state, known = repository.scan(), _load(repository)
            in_turn = turn_id and any(one.record.turn_id == turn_id for one in known if one.record.kind == "checkpoint")
            if in_turn:
                self._add(repository, known, state, SnapshotRecord(kind="edit", at=datetime.now(UTC), turn_id=turn_id))
            else:
                self._add_checkpoint(repository, known, state, label, session_id, turn_id)

    def record_after(self, turn_id: str) -> None:
        """Record what a call has changed."""
        with self._lock_repository() as repository:
            record = SnapshotRecord(kind="agent", at=datetime.now(UTC), turn_id=turn_id)
            self._add(repository, _load(repository), repository.scan(), record)
            self._drop_expired(repository)

    def list(self) -> Sequence[Checkpoint]:
        """Return the checkpoints, newest first."""
        with self._lock_repository() as repository:
            return _number_checkpoints(_load(repository))

    def find(self, name: str) -> Checkpoint:
        """Return the checkpoint with this number, or whose id starts like this; raises `NotFound`."""
        listed = self.list()
        matches = [one for one in listed if str(one.number) == name] or [
            one for one in listed if len(name) >= 4 and one.id.startswith(name.lower())
        ]
        if len(matches) != 1:
            hint = f"There are {len(listed)}, 1 is the newest." if listed else "The agent hasn't changed anything here."
            raise NotFound(f"There is no checkpoint `{name}` of {self.root}. {hint}")
        return matches[0]

    def diff(self, checkpoint: Checkpoint) -> Sequence[ChangedFile]:
        """Return what has changed since a checkpoint, by path."""
        with self._lock_repository() as repository:
            before = repository.list_files(_find(_load(repository), checkpoint).snapshot.tree)
            after = repository.list_files(repository.scan().tree)
            changed = _find_changed_paths(before, after)
            entries = [one for path in changed for one in (before.get(path), after.get(path)) if one is not None]
            contents = repository.read([one.blob for one in entries])
            return [_describe_change(path, before.get(path), after.get(path), contents) for path in changed]

    def plan(self, checkpoint: Checkpoint) -> RestorePlan:
        """Return what `restore` would do now."""
        with self._lock_repository() as repository:
            return _Restoring(self.root, repository, checkpoint).plan

    def restore(self, checkpoint: Checkpoint, *, keep: Collection[str] = (), overwrite: bool = False) -> RestoreResult:
        """Restore the files; the present state becomes a checkpoint first."""
        with self._lock_repository() as repository:
            restoring = _Restoring(self.root, repository, checkpoint)
            endangered = [path for path in restoring.plan.edited if path not in keep]
            if endangered and not overwrite:
                raise EditedSince(endangered)
            label = f"before returning to {checkpoint.id}"
            self._add_checkpoint(repository, _load(repository), restoring.state, label, "", "")
            try:
                return restoring.run(frozenset(keep))
            finally:
                record = SnapshotRecord(kind="agent", at=datetime.now(UTC))
                self._add(repository, _load(repository), repository.scan(), record)

    def prune(self, *, everything: bool = False) -> int:
        """Delete expired checkpoints, or all, free their space, and return their number."""
        with self._lock_repository() as repository:
            return self._drop_expired(repository, everything=everything, compact=True)

    def _add(
        self, repository: SnapshotRepository, known: Sequence[_Recorded], state: ScannedState, record: SnapshotRecord
    ) -> None:
        if known and known[-1].snapshot.tree != state.tree:
            repository.save(known[-1].snapshot.number + 1, state.tree, _encode(record, state))

    def _add_checkpoint(
        self,
        repository: SnapshotRepository,
        known: Sequence[_Recorded],
        state: ScannedState,
        label: str,
        session_id: str,
        turn_id: str,
    ) -> None:
        """Save a checkpoint; it replaces the newest one if nothing has changed since that."""
        last = known[-1] if known else None
        number = last.snapshot.number + 1 if last is not None else 1
        if last is not None and last.record.kind == "checkpoint" and last.snapshot.tree == state.tree:
            number = last.snapshot.number
        text = " ".join(label.split())[:_MAX_LABEL]
        record = SnapshotRecord(
            kind="checkpoint", at=datetime.now(UTC), label=text, session_id=session_id, turn_id=turn_id
        )
        repository.save(number, state.tree, _encode(record, state))

    def _drop_expired(self, repository: SnapshotRepository, *, everything: bool = False, compact: bool = False) -> int:
        """Remove the oldest snapshots up to the first that stays; the last checkpoint in use stays whole."""
        known = _load(repository)
        checkpoints = [one for one in known if one.record.kind == "checkpoint"]
        oldest = datetime.now(UTC) - self._retention.age
        staying = [one for one in checkpoints[-self._retention.checkpoints :] if one.record.at >= oldest]
        first = staying[0].snapshot.number if staying and not everything else None
        dropped = [one for one in known if first is None or one.snapshot.number < first]
        repository.remove(one.snapshot.number for one in dropped)
        repository.compact(always=compact)
        return sum(one.record.kind == "checkpoint" for one in dropped)

    @contextmanager
    def _lock_repository(self) -> Iterator[SnapshotRepository]:
        """Yield the repository while no other process uses it."""
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CheckpointFailed(f"Checkpoints can't be stored in {self._folder}: {error.strerror}.") from error
        try:
            self._wait_for_lock(descriptor)
            with closing(self._open_repository(descriptor)) as repository:
                yield repository
        except OSError as error:
            raise CheckpointFailed(f"Checkpoints of {self.root} failed: {error.strerror or error}.") from error
        finally:
            os.close(descriptor)

    def _wait_for_lock(self, descriptor: int) -> None:
        until = time.monotonic() + self._retention.lock_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CheckpointFailed(f"Another process is using the checkpoints of {self.root}.") from None
                time.sleep(_LOCK_PAUSE)
            else:
                return


class _Restoring:
    """A checkpoint, the present state, and how to get from this to that."""

    def __init__(self, root: Path, repository: SnapshotRepository, checkpoint: Checkpoint) -> None:
        self._root = os.fsencode(root)
        self._repository = repository
        known = _load(repository)
        target = _find(known, checkpoint)
        self.state = repository.scan()
        self._before, self._now = repository.list_files(target.snapshot.tree), repository.list_files(self.state.tree)
        changed = _find_changed_paths(self._before, self._now)
        unsaved = {path for path in changed if path not in self._now and _is_file(self._make_absolute(path))}
        too_large = {path.encode() for path in target.record.skipped}
        self._changed = [path for path in changed if path not in unsaved and path not in too_large]
        edited = self._find_edited(known, target)
        self.plan = RestorePlan(
            checkpoint=checkpoint,
            written=tuple(_show(path) for path in self._changed if path in self._before),
            removed=tuple(_show(path) for path in self._changed if path not in self._before),
            edited=tuple(_show(path) for path in self._changed if path in edited),
            unsaved=tuple(_show(path) for path in sorted(unsaved)),
        )

    def run(self, keep: Collection[str]) -> RestoreResult:
        """Write and remove files; those that have changed since they were scanned stay."""
        chosen = [path for path in self._changed if _show(path) not in keep]
        contents = self._repository.read([self._before[path].blob for path in chosen if path in self._before])
        current = self._repository.read([self._now[path].blob for path in chosen if path in self._now])
        rules = [path for path in chosen if path in self._before and os.path.basename(path) == b".gitignore"]
        written = [path for path in rules if self._write(path, contents, current)]
        # What the restored rules ignore wasn't recorded at that time, so it isn't removed.
        created = [path for path in chosen if path not in self._before]
        ignored = self._repository.find_ignored(created)
        removed = [path for path in created if path not in ignored and self._remove(path, current)]
        others = [path for path in chosen if path in self._before and path not in rules]
        written += [path for path in others if self._write(path, contents, current)]
        done = {*written, *removed}
        left = {*self.plan.written, *self.plan.removed} - {_show(path) for path in done}
        return RestoreResult(
            written=tuple(map(_show, written)),
            removed=tuple(map(_show, removed)),
            kept=tuple(sorted({*left, *self.plan.unsaved})),
        )

    def _find_edited(self, known: Sequence[_Recorded], target: _Recorded) -> set[bytes]:
        """Return the paths that differ between what one call left and what the next one found, since the target."""
        later = [one for one in known if one.snapshot.number >= target.snapshot.number]
        states = [(one.snapshot.tree, one.record.kind) for one in later]
        found: set[bytes] = set()
        for (tree, _), (following, kind) in zip(states, [*states[1:], (self.state.tree, "edit")], strict=True):
            if kind != "agent" and tree != following:
                found.update(
                    _find_changed_paths(self._repository.list_files(tree), self._repository.list_files(following))
                )
        return found

    def _make_absolute(self, path: bytes) -> bytes:
        return os.path.join(self._root, path)

    def _is_as_scanned(self, path: bytes, current: Mapping[str, bytes]) -> bool:
        entry, full = self._now.get(path), self._make_absolute(path)
        if entry is None:
            return not os.path.lexists(full)
        try:
            content = os.readlink(full) if entry.mode == SYMLINK else Path(os.fsdecode(full)).read_bytes()
        except OSError:
            return False
        return content == current[entry.blob]

    def _write(self, path: bytes, contents: Mapping[str, bytes], current: Mapping[str, bytes]) -> bool:
        """Write a file atomically; ``False`` if it is not as scanned or its folder can't be used."""
        if not self._is_as_scanned(path, current):
            return False
        entry, full = self._before[path], self._make_absolute(path)
        folder = os.path.dirname(full)
        try:
            self._make_folder(path)
            descriptor, draft = mkstemp(dir=os.fsdecode(folder), prefix=".talaria-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(contents[entry.blob])
            if entry.mode == SYMLINK:
                os.unlink(draft)
                os.symlink(contents[entry.blob], os.fsencode(draft))
            else:
                os.chmod(draft, self._choose_mode(full, entry))
            os.replace(os.fsencode(draft), full)
        except OSError:
            with suppress(OSError, UnboundLocalError):
                os.unlink(draft)
            return False
        return True

    def _make_folder(self, path: bytes) -> None:
        """Create the folder of a file; raises if a link or a file is in its place."""
        folder = self._root
        for part in path.split(b"/")[:-1]:
            folder = os.path.join(folder, part)
            if os.path.islink(folder):
                raise NotADirectoryError(os.fsdecode(folder))
            if not os.path.isdir(folder):
                os.mkdir(folder)

    @staticmethod
    def _choose_mode(full: bytes, entry: FileEntry) -> int:
        try:
            present = os.lstat(full).st_mode & 0o777
        except OSError:
            mask = person_umask()
            present = 0o666 & ~(mask if mask != INHERIT else _USUAL_MASK)
        readers = present & 0o444
        return present | (readers >> 2) if entry.mode == EXECUTABLE else present & ~0o111

    def _remove(self, path: bytes, current: Mapping[str, bytes]) -> bool:
        """Remove a file, and the folders that are empty then; ``False`` if it is not as scanned."""
        if not self._is_as_scanned(path, current):
            return False
        full = self._make_absolute(path)
        try:
            os.unlink(full)
        except OSError:
            return False
        folder = os.path.dirname(full)
        with suppress(OSError):
            while folder != self._root:
                os.rmdir(folder)
                folder = os.path.dirname(folder)
        return True


def _encode(record: SnapshotRecord, state: ScannedState) -> bytes:
    skipped = tuple(map(_show, state.skipped[:_MAX_SKIPPED]))
    return msgspec.json.encode(msgspec.structs.replace(record, skipped=skipped))


def _load(repository: SnapshotRepository) -> list[_Recorded]:
    return [_Recorded(one, msgspec.json.decode(one.record, type=SnapshotRecord)) for one in repository.list_snapshots()]


def _number_checkpoints(known: Sequence[_Recorded]) -> list[Checkpoint]:
    newest_first = [one for one in reversed(known) if one.record.kind == "checkpoint"]
    return [
        Checkpoint(
            number=number,
            id=one.snapshot.id[:_ID_LENGTH],
            at=one.record.at,
            label=one.record.label,
            session_id=one.record.session_id,
            turn_id=one.record.turn_id,
            skipped=one.record.skipped,
        )
        for number, one in enumerate(newest_first, 1)
    ]


def _find(known: Sequence[_Recorded], checkpoint: Checkpoint) -> _Recorded:
    found = next((one for one in known if one.snapshot.id.startswith(checkpoint.id)), None)
    if found is None:
        raise NotFound(f"The checkpoint {checkpoint.id} has been removed.")
    return found


def _show(path: bytes) -> str:
    """Return a path as text; bytes that aren't UTF-8 are shown as escapes."""
    return path.decode("utf-8", "backslashreplace")


def _is_file(path: bytes) -> bool:
    """Return whether there is something other than a folder."""
    return os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path))


def _find_changed_paths(before: Mapping[bytes, FileEntry], after: Mapping[bytes, FileEntry]) -> list[bytes]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _describe_change(
    path: bytes, before: FileEntry | None, after: FileEntry | None, contents: Mapping[str, bytes]
) -> ChangedFile:
    shown = _show(path)
    change = "created" if before is None else "deleted" if after is None else "changed"
    old, new = (contents[one.blob] if one is not None else b"" for one in (before, after))
    if b"\0" in old or b"\0" in new:
        return ChangedFile(shown, change)
    return ChangedFile(shown, change, diff_texts(old.decode(errors="replace"), new.decode(errors="replace")))
