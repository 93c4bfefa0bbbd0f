"""What a typed message brings along: files that it names with ``@``, and pictures."""

import mimetypes
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from talaria.core.errors import Refused
from talaria.core.messages import Image, Part, Text

_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|([^\s"]+))')
_TRAILING = ".,;:!?)"
_MOST_BYTES = 200_000
_MOST_ENTRIES = 200


def parts_of(text: str, folder: Path) -> list[Part]:
    """Return a message as it is sent: its words, then the files that it mentions, as text or as pictures.

    What is no file stays a word. Raises `Refused` for a file that cannot be read.
    """
    files = dict.fromkeys(_mentioned(text, folder))
    return [Text(text), *(_part(file) for file in files)]


def picture(file: Path) -> Image:
    """Return a file as a picture, or raise `Refused`."""
    if not file.is_file():
        raise Refused(f"There is no picture {file}.")
    kind = picture_kind(file)
    if kind is None:
        raise Refused(f"{file} is not a picture that a model could see.")
    return Image(str(file.absolute()), kind)


def picture_kind(file: Path) -> str | None:
    """Return the kind of picture that a file is by its name."""
    kind, _ = mimetypes.guess_type(file.name)
    return kind if kind is not None and kind.startswith("image/") else None


def path_typed(text: str, folder: Path) -> Path:
    """Return the path that somebody typed, pasted or dropped: quotes, ``~`` and escaped spaces included."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    return folder / Path(bare.removeprefix("file://").replace("\\ ", " ")).expanduser()


def from_home(folder: Path, environment: Mapping[str, str]) -> str:
    """Return a folder as it is usually written, with ``~`` for the person's own."""
    home = environment.get("HOME", "")
    if not home or not folder.is_relative_to(home):
        return str(folder)
    return f"~/{folder.relative_to(home)}".removesuffix("/.")


def _mentioned(text: str, folder: Path) -> Iterator[Path]:
    for found in _MENTION.finditer(text):
        name = found[1] or found[2]
        for candidate in (name, name.rstrip(_TRAILING)):
            path = path_typed(candidate, folder)
            if candidate and _exists(path):
                yield path
                break


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name longer than the system allows
        return False


def _part(path: Path) -> Part:
    if path.is_dir():
        return Text(f"The folder {path}:\n{_listed(path)}")
    if picture_kind(path):
        return picture(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from error
    if b"\0" in raw:
        raise Refused(f"{path} is neither text nor a picture: ask the agent to look at it with its tools.")
    cut = f"\n[cut after {_MOST_BYTES:,} bytes]" if len(raw) > _MOST_BYTES else ""
    return Text(f"The file {path}:\n```\n{raw[:_MOST_BYTES].decode(errors='replace')}\n```{cut}")


def _listed(folder: Path) -> str:
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())
    more = f"\n… and {len(names) - _MOST_ENTRIES} more" if len(names) > _MOST_ENTRIES else ""
    return "\n".join(names[:_MOST_ENTRIES]) + more
