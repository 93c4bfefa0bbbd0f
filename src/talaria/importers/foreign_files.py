"""Files of another agent's home: read without changing them, with a reason for each that can't be read."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import msgspec

from talaria.contracts.imports import ImportKind, SkippedItem
from talaria.core.errors import Refused

_MAX_BYTES = 50_000_000
_COPY_ATTEMPTS = 3
_HIDDEN = re.compile("[\x00\ud800-\udfff]")  # no store takes them
_MILLISECONDS = 100_000_000_000  # seconds of the year 5138: a larger number counts milliseconds
_JSON5 = re.compile(
    r'(?P<ignored>\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)|"(?:\\.|[^"\\])*"'
    r"|(?P<single>'(?:\\.|[^'\\])*')|(?P<word>[A-Za-z_$][\w$]*)|[-+.\w]+|."
)
_decode = msgspec.json.Decoder().decode


class ForeignFiles:
    """Reader of the files below a home; ``skipped`` lists those that could not be read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.skipped: list[SkippedItem] = []

    def skip(self, kind: ImportKind, name: str, reason: str) -> None:
        """Record something that is not imported."""
        self.skipped.append(SkippedItem(kind, name, reason))

    def read_text(self, kind: ImportKind, path: Path) -> str:
        """Return the text of a file; empty if there is none or it can't be read."""
        try:
            if path.stat().st_size > _MAX_BYTES:
                self.skip(kind, self.format_name(path), f"It has more than {_MAX_BYTES:,} bytes.")
                return ""
            return clean_text(path.read_bytes().decode("utf-8-sig", errors="replace"))
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.skip(kind, self.format_name(path), f"It can't be read: {error.strerror}.")
            return ""

    def read_json(self, kind: ImportKind, path: Path) -> Any:
        """Return the content of a JSON file; ``None`` if unusable."""
        return self._parse(kind, path, parse_relaxed_json, "JSON")

    def read_yaml(self, kind: ImportKind, path: Path) -> Any:
        """Return the content of a YAML file; ``None`` if unusable."""
        import yaml  # noqa: PLC0415 (loaded when a home has such a file)

        def parse(text: str) -> Any:
            try:
                return yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(str(error)) from error

        return self._parse(kind, path, parse, "YAML")

    def read_toml(self, kind: ImportKind, path: Path) -> Any:
        """Return the content of a TOML file; ``None`` if unusable."""
        return self._parse(kind, path, tomllib.loads, "TOML")

    def format_name(self, path: Path) -> str:
        """Return the name of a file in reports: its path in the home."""
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def _parse(self, kind: ImportKind, path: Path, parse: Callable[[str], Any], language: str) -> Any:
        text = self.read_text(kind, path)
        if not text.strip():
            return None
        try:
            return parse(text)
        except (ValueError, RecursionError) as error:
            where = str(error).partition("\n")[0]
            self.skip(kind, self.format_name(path), f"It isn't valid {language}: {where}.")
            return None


def parse_relaxed_json(text: str) -> Any:
    """Return the value of JSON, also in the form that people write it (JSON5); raises `ValueError`."""
    try:
        return json.loads(text)
    except ValueError:
        tokens = [found for found in _JSON5.finditer(text) if found.lastgroup != "ignored"]
        written = [_write_token(token, tokens[index + 1 : index + 2]) for index, token in enumerate(tokens)]
        return json.loads("".join(written))


def _write_token(token: "re.Match[str]", following: "list[re.Match[str]]") -> str:
    text = token[0]
    next_text = following[0][0] if following else ""
    if token.lastgroup == "single":
        return json.dumps(text[1:-1].replace("\\'", "'"))
    if token.lastgroup == "word" and next_text == ":":
        return json.dumps(text)
    return "" if text == "," and next_text in {"}", "]"} else text


def read_json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
    """Yield number and object of each line; ``None`` for a line that isn't a whole JSON object."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                entry = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                entry = None
            yield number, entry if isinstance(entry, dict) else None


def split_markdown(text: str) -> list[str]:
    """Return the statements of a Markdown text: list items and paragraphs, without headings, comments and code."""
    entries: list[str] = []
    is_code = is_open = False
    for line in _remove_comments(text).splitlines():
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code, is_open = not is_code, False
        elif is_code or not stripped or stripped.startswith(("#", "---")):
            is_open = False
        elif stripped.startswith(("- ", "* ")) or not is_open:
            entries.append(stripped.removeprefix("- ").removeprefix("* "))
            is_open = True
        else:
            entries[-1] += f" {stripped}"
    return [entry for entry in entries if entry]


def _remove_comments(text: str) -> str:
    first, *others = text.split("<!--")
    return first + "".join(other.partition("-->")[2] for other in others)


def clean_text(text: str) -> str:
    """Return text that every store takes: without zero bytes and halves of characters."""
    return _HIDDEN.sub("\ufffd", text) if _HIDDEN.search(text) else text


def as_text(value: Any) -> str:
    """Return a value of a foreign file as text; empty if it is none."""
    return clean_text(value) if isinstance(value, str) else ""


def as_table(value: Any) -> Mapping[str, Any]:
    """Return a value of a foreign file as a table; empty if it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value of a foreign file as a list; empty if it is none."""
    return value if isinstance(value, list) else []


def as_count(value: Any) -> int:
    """Return a value of a foreign file as a number of at least 0."""
    return max(0, int(value)) if isinstance(value, int | float) and value == value else 0


def read_time(value: Any) -> datetime | None:
    """Return a time given in ISO form, or in seconds or milliseconds since 1970; ``None`` if it is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def open_copy(database: Path) -> apsw.Connection:
    """Return a connection to a private copy of an SQLite file with its log.

    The copy is gone when it is closed. Opening the original would create files next to it. Raises `Refused` if it can't
    be copied while it stays the same.
    """
    files = [Path(f"{database}{suffix}") for suffix in ("", "-wal")]
    with TemporaryDirectory(prefix="talaria-import-") as folder:
        for _ in range(_COPY_ATTEMPTS):
            before = [_read_stamp(file) for file in files]
            for file in files:
                _copy(file, Path(folder, file.name))
            if before == [_read_stamp(file) for file in files]:
                return _open(Path(folder, database.name))
    raise Refused(f"{database} changes while it is read. Stop the program that uses it, then repeat the import.")


def _copy(file: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        shutil.copyfile(file, target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Refused(f"{file} can't be copied: {error.strerror}.") from error


def _open(copy: Path) -> apsw.Connection:
    """Open a copy so that it needs no other file: it can be deleted then, even before a crash."""
    try:
        connection = apsw.Connection(str(copy))
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        connection.execute("PRAGMA query_only = 1")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as error:
        raise Refused(f"{copy.name} isn't a usable SQLite file: {error}.") from error
    return connection


def list_columns(connection: apsw.Connection, table: str) -> list[str]:
    """Return the columns of a table; none if it does not exist."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _read_stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size
