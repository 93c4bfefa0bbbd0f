"""Snapshots with the Git program: its own repository and index, without the person's configuration or hooks."""

import hashlib
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from talaria.contracts.checkpoints import CheckpointFailed
from talaria.tools.checkpoints.repository import (
    FileEntry,
    ScannedState,
    Snapshot,
    SnapshotLimits,
    find_own_excludes,
    raise_too_many,
    remove_stale_locks,
    select_files,
)

_REFS = "refs/checkpoints/"
_LAST_TREE = "last-tree"
_HASH_BYTES = 20
_FORMAT = "%(refname:lstrip=2)%00%(objectname)%00%(tree)%00%(contents)%00"
_CONFIG = {
    "core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.autocrlf": "false", "core.fileMode": "true",
    "core.symlinks": "true", "core.excludesFile": "/dev/null", "core.attributesFile": "/dev/null", "gc.auto": "0",
    "core.looseCompression": "1", "core.precomposeUnicode": "false", "core.sparseCheckout": "false",
}  # fmt: skip
_ATTRIBUTES = "* -text !eol -ident !filter !working-tree-encoding\n"  # contents are saved byte by byte
_GC_SAMPLE, _GC_FILES = "17", 27  # a sample of 1 in 256 folders: about 7,000 loose objects, as in Git itself


class GitRepository:
    """Implementation of `SnapshotRepository` with the ``git`` program.

    ``inherit`` is the descriptor of the lock: a child that outlives this process holds it until it ends.
    """

    def __init__(
        self, program: str, folder: Path, root: Path, limits: SnapshotLimits, *, path: str, inherit: int
    ) -> None:
        self._program = program
        self._folder = folder
        self._root = root
        self._limits = limits
        self._inherit = inherit
        self._environment = {
            "PATH": path, "HOME": str(folder), "LC_ALL": "C", "GIT_WORK_TREE": str(root),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "Talaria", "GIT_AUTHOR_EMAIL": "talaria@localhost", "GIT_COMMITTER_NAME": "Talaria",
            "GIT_COMMITTER_EMAIL": "talaria@localhost", "GIT_DEFAULT_HASH": "sha1", "GIT_DEFAULT_REF_FORMAT": "files",
            "GIT_CONFIG_COUNT": str(len(_CONFIG)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_CONFIG)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIG.values())},
        }  # fmt: skip
        self._prepare()

    def scan(self) -> ScannedState:
        """Save the content of all files that are neither ignored nor too large, and return their tree."""
        own = find_own_excludes(self._root)
        excludes = (f"--exclude-from={own}",) if own is not None else ()
        listed = self._run(
            "ls-files", "-z", "-t", "--others", "--modified", "--deleted", "--exclude-standard", *excludes
        )
        tagged = {line[2:]: line[:1] for line in listed.split(b"\0") if line}
        new = sum(tag == b"?" for tag in tagged.values())
        if new and new + self._count_entries() > self._limits.max_files:
            raise_too_many(self._root, self._limits)
        selected = select_files(os.fsencode(self._root), tagged, self._limits)
        removed = [path for path in (*selected.gone, *selected.large) if tagged[path] != b"?"]
        if removed:
            self._run("update-index", "--force-remove", "-z", "--stdin", given=_join(removed))
        if selected.present:
            self._run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=_join(selected.present))
        return ScannedState(self._write_tree(), tuple(selected.large))

    def _write_tree(self) -> str:
        """Return the tree of the index, which is remembered as long as the index stays the same."""
        remembered = self._folder / _LAST_TREE
        with suppress(OSError, ValueError):
            index, tree = remembered.read_text().split()
            if index == self._read_index_hash():
                return tree
        tree = self._run("write-tree").decode().strip()
        draft = remembered.with_suffix(".lock")
        draft.write_text(f"{self._read_index_hash()} {tree}")
        draft.replace(remembered)
        return tree

    def _read_index_hash(self) -> str:
        """Return the hash at the end of the index."""
        with (self._folder / "index").open("rb") as file:
            file.seek(-_HASH_BYTES, os.SEEK_END)
            return file.read().hex()

    def save(self, number: int, tree: str, record: bytes) -> str:
        """Save a snapshot atomically under this number, in place of an earlier one, and return its id.

        Two small files are written here and not by two programs, which would take most of the time of a checkpoint.
        """
        who = f"Talaria <talaria@localhost> {int(time.time())} +0000"
        body = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n".encode() + record
        data = b"commit %d\0" % len(body) + body
        commit = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        objects, refs = self._folder / "objects" / commit[:2], self._folder / _REFS
        _replace(objects / f"tmp_obj_{commit[2:]}", objects / commit[2:], zlib.compress(data, 1), 0o444)
        _replace(refs / f"{number:08}.lock", refs / f"{number:08}", f"{commit}\n".encode(), 0o644)
        return commit

    def list_snapshots(self) -> Sequence[Snapshot]:
        """Return all snapshots by number."""
        listed = self._run("for-each-ref", f"--format={_FORMAT}", _REFS.rstrip("/"))
        rows = [row.split(b"\0") for row in listed.split(b"\0\n") if row]
        return [Snapshot(int(name), commit.decode(), tree.decode(), record) for name, commit, tree, record in rows]

    def list_files(self, tree: str) -> Mapping[bytes, FileEntry]:
        """Return the files of a tree by path."""
        rows = [row.partition(b"\t") for row in self._run("ls-tree", "-r", "-z", tree).split(b"\0") if row]
        entries = [(path, facts.split()) for facts, _, path in rows]
        return {path: FileEntry(int(mode, 8), blob.decode()) for path, (mode, _, blob) in entries}

    def read(self, blobs: Collection[str]) -> Mapping[str, bytes]:
        """Return contents by their ids."""
        names = list(dict.fromkeys(blobs))
        answer = self._run("cat-file", "--batch", given="".join(f"{one}\n" for one in names).encode()) if names else b""
        found, at = {}, 0
        for blob in names:
            end = answer.index(b"\n", at)
            size = int(answer[at:end].rpartition(b" ")[2])
            found[blob] = answer[end + 1 : end + 1 + size]
            at = end + 2 + size
        return found

    def find_ignored(self, paths: Collection[bytes]) -> set[bytes]:
        """Return those of the paths that the rules in the folder exclude now."""
        if not paths:
            return set()
        listed = self._run("check-ignore", "--no-index", "-z", "--stdin", given=_join(paths), accept=(0, 1))
        return set(listed.split(b"\0")) - {b""}

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove snapshots; their content stays until `compact`."""
        lines = "".join(f"delete {_REFS}{number:08}\n" for number in numbers)
        if lines:
            self._run("update-ref", "--stdin", given=lines.encode())

    def compact(self, *, always: bool) -> None:
        """Free the space of content that no snapshot uses; unless ``always``, only if that is worth its time."""
        if always or self._is_scattered():
            (self._folder / _LAST_TREE).unlink(missing_ok=True)
            self._run("gc", "--quiet", "--prune=now")

    def close(self) -> None:
        """Do nothing: each command closes its files."""

    def _is_scattered(self) -> bool:
        """Return whether many objects lie in files of their own."""
        try:
            return len(os.listdir(self._folder / "objects" / _GC_SAMPLE)) > _GC_FILES
        except OSError:
            return False

    def _prepare(self) -> None:
        """Create the repository with its rules."""
        if not self._folder.is_dir():
            draft = self._folder.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            self._run("init", "--quiet", "--template=", folder=draft)
            draft.rename(self._folder)
        info = self._folder / "info"
        info.mkdir(exist_ok=True)
        for name, text in (
            ("attributes", _ATTRIBUTES),
            ("exclude", "".join(f"{one}\n" for one in self._limits.exclude)),
        ):
            if not (info / name).is_file() or (info / name).read_text() != text:
                (info / name).write_text(text)
        remove_stale_locks(self._folder)

    def _count_entries(self) -> int:
        """Return the number of files in the index, which is the third word of its header."""
        with suppress(OSError), (self._folder / "index").open("rb") as file:
            return int.from_bytes(file.read(12)[8:], "big")
        return 0

    def _run(
        self,
        command: str,
        *arguments: str,
        given: bytes = b"",
        accept: Collection[int] = (0,),
        folder: Path | None = None,
    ) -> bytes:
        try:
            done = subprocess.run(
                [self._program, command, *arguments],
                input=given,
                capture_output=True,
                cwd=self._root,
                env=self._environment | {"GIT_DIR": str(folder or self._folder)},
                timeout=self._limits.seconds,
                pass_fds=(self._inherit,),
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CheckpointFailed(
                f"Reading {self._root} took longer than {self._limits.seconds:g} s, the limit of "
                "checkpoints.max_seconds."
            ) from error
        except OSError as error:
            raise CheckpointFailed(f"Git can't be run in {self._root}: {error.strerror}.") from error
        if done.returncode not in accept:
            why = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
            raise CheckpointFailed(f"Git failed for the checkpoints of {self._root}: {why[-1]}")
        return done.stdout


def _replace(draft: Path, target: Path, data: bytes, mode: int) -> None:
    """Write a file completely or not at all, also if the power fails; drafts of killed processes are overwritten."""
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


def _join(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
