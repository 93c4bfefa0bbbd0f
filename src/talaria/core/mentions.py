"""Files that a typed message mentions with ``@``: completion, and their content as parts of the message."""

import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path

from talaria.core.errors import Refused
from talaria.core.messages import File, Image, Part, Text

_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|([^\s"]+))')
_TRAILING = ".,;:!?)"
_MAX_BYTES = 200_000
_MAX_ENTRIES = 200
_MAX_COMPLETIONS = 60


def build_message_parts(text: str, folder: Path) -> list[Part]:
    """Return the parts of a message: its text, then the mentioned files: text, images, and others for tools to read.

    A mention that is not a file stays text. Raises `Refused` for a file that cannot be read.
    """
    files = dict.fromkeys(_find_mentions(text, folder))
    return [Text(text), *(_build_part(file) for file in files)]


def open_image(file: Path) -> Image:
    """Return a file as an image; raises `Refused`."""
    if not file.is_file():
        raise Refused(f"There is no image {file}.")
    kind = guess_picture_type(file)
    if kind is None:
        raise Refused(f"{file} isn't an image that models can see.")
    return Image(str(file.absolute()), kind)


def guess_picture_type(file: Path) -> str | None:
    """Return the image type of a file by its name."""
    kind, _ = mimetypes.guess_type(file.name)
    return kind if kind is not None and kind.startswith("image/") else None


def parse_typed_path(text: str, folder: Path) -> Path:
    """Return a typed, pasted or dropped path, with quotes, ``~`` and escaped spaces resolved."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    return folder / Path(bare.removeprefix("file://").replace("\\ ", " ")).expanduser()


def complete_files(typed: str, folder: Path) -> list[str]:
    """Return the mentions, without ``@``, that begin with ``typed``: folders first, hidden files only after a dot."""
    head, slash, tail = typed.rpartition("/")
    parent = folder / Path(head + slash).expanduser() if head or slash else folder
    try:
        entries = sorted(parent.iterdir(), key=lambda entry: (entry.is_file(), entry.name.lower()))
    except (OSError, RuntimeError, ValueError):  # no such folder, user or path
        return []
    found = [entry for entry in entries if _matches(entry.name, tail)][:_MAX_COMPLETIONS]
    return [f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}" for entry in found]


def _find_mentions(text: str, folder: Path) -> Iterator[Path]:
    for found in _MENTION.finditer(text):
        name = found[1] or found[2]
        for candidate in (name, name.rstrip(_TRAILING)):
            path = parse_typed_path(candidate, folder)
            if candidate and _exists(path):
                yield path
                break


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name longer than the system allows
        return False


def _build_part(path: Path) -> Part:
    if path.is_dir():
        return Text(f"The folder {path}:\n{_list_folder(path)}")
    if guess_picture_type(path):
        return open_image(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"Can't read {path}: {error.strerror}.") from error
    if b"\0" in raw:
        return File(str(path.absolute()), path.name, mimetypes.guess_type(path.name)[0] or "application/octet-stream")
    notice = f"\n[cut after {_MAX_BYTES:,} bytes]" if len(raw) > _MAX_BYTES else ""
    return Text(f"The file {path}:\n```\n{raw[:_MAX_BYTES].decode(errors='replace')}\n```{notice}")


def _list_folder(folder: Path) -> str:
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())
    more = f"\n… and {len(names) - _MAX_ENTRIES} more" if len(names) > _MAX_ENTRIES else ""
    return "\n".join(names[:_MAX_ENTRIES]) + more


def _matches(name: str, typed: str) -> bool:
    hidden = name.startswith(".") and not typed.startswith(".")
    return not hidden and name.lower().startswith(typed.lower())
