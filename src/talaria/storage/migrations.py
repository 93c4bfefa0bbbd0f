"""Numbered, append-only schema migrations, with the same numbers for every engine."""

from pathlib import Path

from msgspec import Struct

from talaria.core.errors import StoreTooNew


class Migration(Struct, frozen=True):
    """SQL statements that take the schema to version ``number``."""

    number: int
    name: str
    statements: str


LATEST_SCHEMA = 13
_REPEATED = ("0011_*.sql", "0013_*.sql")


def list_migrations(folder: Path) -> list[Migration]:
    """Return the migrations in a folder of ``NNNN_name.sql`` files, in order."""
    return [
        Migration(int(file.stem[:4]), file.stem[5:], file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]


def list_data_migrations(folder: Path) -> list[str]:
    """Return the statements that bring rows of an old backup or file to where this version reads them."""
    texts = [file.read_text(encoding="utf-8") for pattern in _REPEATED for file in folder.glob(pattern)]
    return [statement for text in texts for statement in text.split(";\n") if statement.strip()]


def check_not_newer(version: int, store: str) -> None:
    """Raise `StoreTooNew` for a store created by a newer version of Talaria."""
    if version > LATEST_SCHEMA:
        raise StoreTooNew(
            f"{store} was made by a newer Talaria (schema {version}; this one knows {LATEST_SCHEMA}). It was left"
            " untouched: update Talaria, or choose another profile with -p."
        )
