"""Folder trust: commands and skills of a project work only after the owner has trusted the folder, as it is now.

A trusted folder is stored in the profile by its real path and a digest of the files that would take effect. When one of
those files changes, the folder has to be trusted again.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from talaria.core.errors import Refused

PROJECT_FILES = (".talaria/commands", ".talaria/skills")
_MOST_FILES = 2_000
_MOST_BYTES = 20_000_000
_decode = msgspec.json.Decoder(dict[str, str]).decode


class FolderTrust:
    """The trusted folders of the profile in this folder."""

    def __init__(self, profile: Path) -> None:
        self._file = profile / "trusted-folders.json"

    def folders(self) -> Mapping[str, str]:
        """Return the digest of each trusted folder by its real path."""
        try:
            return _decode(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise Refused(f"{self._file} cannot be read. Delete it and trust your folders again.") from error

    def is_trusted(self, folder: Path) -> bool:
        """Return whether the files of a folder are those that the owner has trusted; also if it has none."""
        files = project_files(folder)
        return not files or self.folders().get(os.path.realpath(folder)) == digest_of(folder)

    def trust(self, folder: Path) -> str:
        """Trust a folder as it is now, and return its real path."""
        place = os.path.realpath(folder)
        self._write({**self.folders(), place: digest_of(folder)})
        return place

    def revoke(self, folder: Path) -> bool:
        """Trust a folder no longer; ``False`` if it wasn't trusted."""
        known, place = dict(self.folders()), os.path.realpath(folder)
        if known.pop(place, None) is None:
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
    found = [path for root in PROJECT_FILES for path in _below(folder / root)]
    if len(found) > _MOST_FILES:
        raise Refused(f"{folder} has more than {_MOST_FILES:,} files in {' and '.join(PROJECT_FILES)}.")
    return sorted(found)


def digest_of(folder: Path) -> str:
    """Return a digest of the names and contents of those files."""
    digest, left = hashlib.sha256(), _MOST_BYTES
    for path in project_files(folder):
        content = path.read_bytes() if path.stat().st_size <= left else None
        if content is None:
            raise Refused(f"{folder} has more than {_MOST_BYTES:,} bytes in {' and '.join(PROJECT_FILES)}.")
        left -= len(content)
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _below(root: Path) -> Iterator[Path]:
    count = 0
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if (path := Path(folder, name)).is_file():
                yield path
                count += 1
        if count > _MOST_FILES:
            return
