"""Numbered migrations: files that are only ever added to, the same numbers for every engine."""

from pathlib import Path

from msgspec import Struct

from talaria.core.errors import StoreTooNew


class Migration(Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    statements: str


LATEST = 7


def migrations_in(folder: Path) -> list[Migration]:
    """Return the steps in a folder of ``NNNN_name.sql`` files, in order."""
    return [
        Migration(int(file.stem[:4]), file.stem[5:], file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]


def check_not_newer(version: int, store: str) -> None:
    """Raise `StoreTooNew` for a store that a later program has made."""
    if version > LATEST:
        raise StoreTooNew(
            f"{store} was made by a newer Talaria (schema {version}; this one knows {LATEST}). It was left untouched:"
            " update Talaria, or choose another profile with -p."
        )
