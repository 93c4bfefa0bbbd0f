"""Backups as files: a zip of the store's rows and of the profile's settings, the same for every engine."""

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

from talaria.contracts.store import Transaction
from talaria.contracts.stores.archive import Archive, Cell
from talaria.core.errors import Refused

FORMAT = 1
_MANIFEST = "manifest.json"
_decode_columns = msgspec.json.Decoder(list[str]).decode
_decode_row = msgspec.json.Decoder(list[Cell]).decode
Heard = Callable[[int], None]


class Manifest(Struct, frozen=True, kw_only=True):
    """What a backup says of itself; ``rows`` counts by table, ``files`` are those of the profile in it."""

    format: int
    talaria: str
    profile: str
    made_at: datetime
    rows: dict[str, int]
    files: list[str]


def write_backup(path: Path, manifest: Manifest, files: Mapping[str, bytes], tx: Transaction, heard: Heard) -> Manifest:
    """Write a backup durably and return its manifest; until it is whole, nothing stands at ``path``."""
    draft = path.with_name(f".{path.name}.partial")
    try:
        with _private(draft) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
            rows = {table: _write_table(archive, tx.archive, table, heard) for table in tx.archive.tables()}
            for name, content in files.items():
                archive.writestr(f"profile/{name}", content)
            whole = msgspec.structs.replace(manifest, rows=rows, files=list(files))
            archive.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(whole)))
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return whole


@contextmanager
def open_backup(path: Path) -> Iterator["Backup"]:
    """Open a backup, or raise `Refused` with what is wrong with the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = msgspec.json.decode(archive.read(_MANIFEST), type=Manifest)
            if manifest.format > FORMAT:
                raise Refused(
                    f"{path} was made by a newer Talaria ({manifest.talaria}). Update Talaria, then restore it."
                )
            yield Backup(archive, manifest)
    except FileNotFoundError as error:
        raise Refused(f"There is no file {path}.") from error
    except (zipfile.BadZipFile, KeyError, EOFError, msgspec.DecodeError, zlib.error) as error:
        raise Refused(f"{path} is not a whole backup of Talaria ({error}). Nothing was changed.") from error


class Backup:
    """A backup that is open for reading."""

    def __init__(self, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self._archive = archive
        self.manifest = manifest

    def file(self, name: str) -> bytes | None:
        """Return one of the profile's files, if it is in the backup."""
        return self._archive.read(f"profile/{name}") if name in self.manifest.files else None

    def load(self, tx: Transaction, heard: Heard) -> None:
        """Put the rows of the backup in the place of all that is in the store."""
        tx.archive.clear()
        for table in tx.archive.tables():
            if table in self.manifest.rows:
                self._load_table(tx.archive, table, heard)
        tx.archive.finish()

    def _load_table(self, target: Archive, table: str, heard: Heard) -> None:
        with self._archive.open(_member(table)) as stream:
            columns = _decode_columns(stream.readline())
            unknown = set(columns) - set(target.columns(table))
            if unknown:
                raise Refused(
                    f"The backup was made by a newer Talaria ({self.manifest.talaria}): this one does not know"
                    f" {table}.{min(unknown)}. Update Talaria, then restore it."
                )
            count = target.load(table, columns, _rows(stream, heard))
        if count != self.manifest.rows[table]:
            raise Refused(
                f"The backup has {count} of {self.manifest.rows[table]} rows of {table}. Nothing was changed."
            )


def _write_table(archive: zipfile.ZipFile, source: Archive, table: str, heard: Heard) -> int:
    count = 0
    with archive.open(_member(table), "w", force_zip64=True) as stream:
        stream.write(msgspec.json.encode(source.columns(table)) + b"\n")
        for row in source.rows(table):
            stream.write(msgspec.json.encode(row) + b"\n")
            heard(1)
            count += 1
    return count


def _rows(stream: Iterator[bytes], heard: Heard) -> Iterator[Sequence[Cell]]:
    for line in stream:
        heard(1)
        yield _decode_row(line)


def _member(table: str) -> str:
    return f"store/{table}.jsonl"


@contextmanager
def _private(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(descriptor)
