"""Records of installed skills: origin, digest, and the digest of the files that a person has confirmed."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from talaria.contracts.skills import SkillOrigin
from talaria.core.errors import ToolFailed
from talaria.core.files import FileCache
from talaria.tools.atomic_files import sole_writer, write_whole

_IGNORED = frozenset({"__pycache__", ".DS_Store"})  # written by programs that run or look at a skill
_SETTLED_NS = 2_000_000_000  # a file changed this recently may change again without a new time


class InstalledSkill(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Record of an installed skill; ``digest`` is what was installed, ``confirmed`` what the agent may see."""

    origin: SkillOrigin
    digest: str
    installed_at: datetime
    confirmed: str = ""


class SkillRecords:
    """Records, in this file, of the skills that were installed next to it, by the name of their folder."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._root = file.parent

    def read_all(self) -> Mapping[str, InstalledSkill]:
        """Return all records; raises `ToolFailed` if they can't be read."""
        try:
            return _RECORDS.get(str(self._file)) or {}
        except (OSError, msgspec.MsgspecError) as error:
            raise ToolFailed(
                f"{self._file} can't be read; repair it, or delete it and install its skills again"
            ) from error

    def put(self, name: str, origin: SkillOrigin, digest: str) -> None:
        """Record a version that is being installed, not confirmed."""
        record = InstalledSkill(origin=origin, digest=digest, installed_at=datetime.now(UTC))
        self._change_records(lambda records: records.update({name: record}))

    def confirm(self, name: str) -> None:
        """Record that a person has confirmed the current files of a skill, if it was installed."""

        def confirm(records: dict[str, InstalledSkill]) -> None:
            if name in records:
                records[name] = structs.replace(records[name], confirmed=compute_folder_digest(self._root / name))

        if name in self.read_all():
            self._change_records(confirm)

    def remove(self, name: str) -> None:
        """Forget a skill."""
        if name in self.read_all():
            self._change_records(lambda records: records.pop(name, None))

    def find_problem(self, name: str) -> str:
        """Return why the agent must not see a skill, as a sentence; empty if it may."""
        record = self.read_all().get(name)
        if record is None:
            return ""
        if not record.confirmed:
            return f"It isn't confirmed yet: `talaria skills enable {name}` shows what it would run, and asks."
        if record.confirmed != compute_folder_digest(self._root / name):
            return (
                f"Its files have changed since they were confirmed: check them with `talaria skills audit {name}`, "
                f"then `talaria skills enable {name}`."
            )
        return ""

    def is_changed(self, name: str) -> bool:
        """Return whether an installed skill differs from what was installed."""
        record = self.read_all().get(name)
        return record is not None and record.digest != compute_folder_digest(self._root / name)

    def _change_records(self, change: Callable[[dict[str, InstalledSkill]], object]) -> None:
        with sole_writer(self._root):
            records = dict(self.read_all())
            change(records)
            text = msgspec.json.format(msgspec.json.encode(dict(sorted(records.items()))), indent=2)
            write_whole(self._file, text.decode(), mode=0o644)


_RECORDS = FileCache(msgspec.json.Decoder(dict[str, InstalledSkill]).decode)


def compute_digest(files: Mapping[str, tuple[bytes, bool]]) -> str:
    """Return the digest of a skill from content and executable bit of each file."""
    digest = hashlib.sha256()
    for path in sorted(files):
        content, executable = files[path]
        digest.update(f"{path}\0{executable:d}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def compute_folder_digest(folder: Path) -> str:
    """Return the digest of the files in a folder; links count with their target."""
    found = dict(_walk(folder))
    version = tuple(
        (path, one.st_mtime_ns, one.st_ctime_ns, one.st_size, one.st_ino, one.st_mode) for path, one in found.items()
    )
    if any(time.time_ns() - one.st_ctime_ns < _SETTLED_NS for one in found.values()):
        return _digest_files(str(folder), version)
    return _cached_digest(str(folder), version)


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in _IGNORED)
        for name in (*names, *(one for one in folders if os.path.islink(f"{parent}/{one}"))):  # noqa: PTH114
            path = f"{parent}/{name}"
            if name not in _IGNORED:
                yield path[len(str(folder)) + 1 :], os.lstat(path)


_FileVersion = tuple[str, int, int, int, int, int]


def _digest_files(folder: str, version: tuple[_FileVersion, ...]) -> str:
    files: dict[str, tuple[bytes, bool]] = {}
    for path, *_, mode in version:
        full = Path(folder, path)
        try:
            content = full.read_bytes() if stat.S_ISREG(mode) else f"-> {full.readlink()}".encode()
        except OSError:
            content = b"unreadable"
        files[path] = (content, bool(mode & stat.S_IXUSR) and not stat.S_ISLNK(mode))
    return compute_digest(files)


_cached_digest = lru_cache(256)(_digest_files)
