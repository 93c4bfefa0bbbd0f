"""Folder trust: a project's commands and skills work only after the owner has trusted the folder.

A trusted folder is stored in the profile by its real path and a digest of the files that would take effect. When one of
those files changes, the folder has to be trusted again.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from talaria.core.errors import Refused

_PROJECT_FOLDER = ".talaria"
PROJECT_FILES = (f"{_PROJECT_FOLDER}/commands", f"{_PROJECT_FOLDER}/skills")
_MAX_FILES = 2_000
_MAX_BYTES = 20_000_000
_decode = msgspec.json.Decoder(dict[str, str]).decode


class UnreadableFolder(Refused):
    """Error for a folder whose commands and skills cannot be read or are too many."""


class FolderTrust:
    """Trusted folders of the profile in this folder."""

    def __init__(self, profile: Path) -> None:
        self._file = profile / "trusted-folders.json"

    def folders(self) -> Mapping[str, str]:
        """Return the digest of each trusted folder by its real path."""
        try:
            return _decode(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise Refused(f"Can't read {self._file}. Delete it and trust your folders again.") from error

    def is_trusted(self, folder: Path) -> bool:
        """Return whether the owner has trusted the current files of a folder; true if it has none."""
        try:
            files = project_files(folder)
            return not files or self.folders().get(os.path.realpath(folder)) == compute_digest(folder)
        except UnreadableFolder:
            return False

    def notice(self, folder: Path) -> str:
        """Return a notice for a folder whose files are ignored; empty if it is trusted."""
        if self.is_trusted(folder):
            return ""
        return f"Commands and skills in {folder} are ignored until you trust them: `talaria trust {folder}`."

    def trust(self, folder: Path, digest: str = "") -> str:
        """Trust a folder in its current state, or with this digest, and return its real path."""
        real_path = os.path.realpath(folder)
        self._write({**self.folders(), real_path: digest or compute_digest(folder)})
        return real_path

    def revoke(self, folder: Path) -> bool:
        """Revoke trust in a folder; ``False`` if it was not trusted."""
        known, real_path = dict(self.folders()), os.path.realpath(folder)
        if known.pop(real_path, None) is None:
            return False
        self._write(known)
        return True

    def _write(self, known: Mapping[str, str]) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(known)))
        draft.replace(self._file)


def project_files(folder: Path) -> list[Path]:
    """Return the files of a project that would take effect, sorted."""
    found: list[Path] = []
    if not os.path.lexists(f"{folder}/{_PROJECT_FOLDER}"):
        return found
    for path in chain.from_iterable(_list_files(folder / root) for root in PROJECT_FILES):
        found += [path] if path.is_file() else []
        if len(found) > _MAX_FILES:
            raise UnreadableFolder(f"{folder} has more than {_MAX_FILES:,} files in {' and '.join(PROJECT_FILES)}.")
    return sorted(found)


def compute_digest(folder: Path) -> str:
    """Return a digest of the names and contents of those files."""
    digest, remaining = hashlib.sha256(), _MAX_BYTES
    for path in project_files(folder):
        try:
            content = path.read_bytes() if path.stat().st_size <= remaining else None
        except OSError as error:
            raise UnreadableFolder(f"Can't read {path}: {error.strerror}.") from error
        if content is None:
            raise UnreadableFolder(f"{folder} has more than {_MAX_BYTES:,} bytes in {' and '.join(PROJECT_FILES)}.")
        remaining -= len(content)
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _list_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder; follows links, which may form cycles."""
    for count, (folder, _, names) in enumerate(os.walk(root, followlinks=True)):
        if count > _MAX_FILES:
            raise UnreadableFolder(f"{root} has more than {_MAX_FILES:,} folders, or circular links.")
        yield from (Path(folder, name) for name in names)
