"""Backup archives: a zip of the store's rows and the profile's files, independent of the engine."""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from talaria.contracts.store import Archive, Cell, Transaction
from talaria.core.errors import Refused

FORMAT = 2  # an older version knows only the first, and would leave out the values
_MANIFEST = "manifest.json"
_decode_columns = msgspec.json.Decoder(list[str]).decode
_decode_row = msgspec.json.Decoder(list[Cell]).decode
OnProgress = Callable[[int], None]


class BackupManifest(Struct, frozen=True, kw_only=True):
    """Manifest of a backup; ``rows`` counts rows by table, ``files`` lists the profile's files."""

    format: int
    talaria: str
    profile: str
    made_at: datetime
    rows: dict[str, int]
    files: list[str]


def write_backup(
    path: Path, manifest: BackupManifest, files: Mapping[str, bytes], tx: Transaction, on_progress: OnProgress
) -> BackupManifest:
    """Write a backup durably and return its manifest; ``path`` appears only when it is complete."""
    partial_file = path.with_name(f".{path.name}.partial")
    try:
        with (
            _open_private(partial_file) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive,
        ):
            rows = {table: _write_table(archive, tx.archive, table, on_progress) for table in tx.archive.tables()}
            for name, content in files.items():
                archive.writestr(f"profile/{name}", content)
            final_manifest = msgspec.structs.replace(manifest, rows=rows, files=list(files))
            archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(final_manifest)))
        partial_file.rename(path)
    finally:
        partial_file.unlink(missing_ok=True)
    return final_manifest


@contextmanager
def open_backup(path: Path) -> Iterator["Backup"]:
    """Open a backup; raises `Refused` with the problem if the file is not usable."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = msgspec.json.decode(archive.read(_MANIFEST), type=BackupManifest)
            if manifest.format > FORMAT:
                raise Refused(
                    f"{path} was made by a newer version of Talaria ({manifest.talaria}). Update "
                    "Talaria, then restore it."
                )
            yield Backup(archive, manifest)
    except FileNotFoundError as error:
        raise Refused(f"There is no file {path}.") from error
    except (zipfile.BadZipFile, KeyError, EOFError, msgspec.DecodeError, zlib.error) as error:
        raise Refused(f"{path} isn't a complete Talaria backup ({error}). Nothing was changed.") from error


class Backup:
    """Backup opened for reading."""

    def __init__(self, archive: zipfile.ZipFile, manifest: BackupManifest) -> None:
        self._archive = archive
        self.manifest = manifest

    def file(self, name: str) -> bytes | None:
        """Return the content of a profile file, or ``None`` if the backup does not have it."""
        return self._archive.read(f"profile/{name}") if name in self.manifest.files else None

    def load(self, tx: Transaction, on_progress: OnProgress) -> None:
        """Replace all rows of the store by those of the backup."""
        tx.archive.clear()
        for table in tx.archive.tables():
            if table in self.manifest.rows:
                self._load_table(tx.archive, table, on_progress)
        tx.archive.finish()

    def _load_table(self, target: Archive, table: str, on_progress: OnProgress) -> None:
        with self._archive.open(_get_member_name(table)) as stream:
            columns = _decode_columns(stream.readline())
            unknown = set(columns) - set(target.columns(table))
            if unknown:
                raise Refused(
                    "The backup was made by a newer version of Talaria "
                    f"({self.manifest.talaria}); this one doesn't know {table}.{min(unknown)}. "
                    "Update Talaria, then restore it."
                )
            count = target.load(table, columns, _read_rows(stream, on_progress))
        if count != self.manifest.rows[table]:
            raise Refused(
                f"The backup has only {count} of {self.manifest.rows[table]} rows of {table}. Nothing was changed."
            )


def _write_table(archive: zipfile.ZipFile, source: Archive, table: str, on_progress: OnProgress) -> int:
    count = 0
    with archive.open(_get_member_name(table), "w", force_zip64=True) as stream:
        stream.write(msgspec.json.encode(source.columns(table)) + b"\n")
        for row in source.rows(table):
            stream.write(msgspec.json.encode(row) + b"\n")
            on_progress(1)
            count += 1
    return count


def _read_rows(stream: Iterator[bytes], on_progress: OnProgress) -> Iterator[Sequence[Cell]]:
    for line in stream:
        on_progress(1)
        yield _decode_row(line)


def _get_member_name(table: str) -> str:
    return f"store/{table}.jsonl"


@contextmanager
def _open_private(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(descriptor)
