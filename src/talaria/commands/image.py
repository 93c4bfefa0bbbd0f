"""`/image`: show the model a picture with the next message."""

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of
from talaria.commands.words import split_words
from talaria.contracts.tool import Workspace
from talaria.core.errors import NotFound, Refused
from talaria.core.messages import Image
from talaria.core.pictures import picture_type


async def run(errand: Errand) -> None:
    """Attach a file, if it is a picture."""
    file = await asyncio.to_thread(_file, errand)
    kind = await asyncio.to_thread(media_type, file)
    if kind is None:
        raise Refused(f"`{file}` is no picture that a model can see: PNG, JPEG, GIF and WebP are.")
    screen_of(errand).attach(Image(str(file), kind))
    blind = "" if errand.seat.chat.info.images else f" But `{errand.seat.chat.model}` cannot see pictures itself."
    errand.place.show(f"`{file.name}` goes along with the next message.{blind}")


def media_type(file: Path) -> str | None:
    """Return what kind of picture a file is by its content; ``None`` for anything else."""
    try:
        with file.open("rb") as opened:
            return picture_type(opened.read(16))
    except OSError as error:
        raise Refused(f"`{file}` cannot be read: {error.strerror}.") from error


def _file(errand: Errand) -> Path:
    """Return the file that somebody typed or dropped: with quotes, escaped blanks, ``~``, or as an address."""
    if not errand.words:
        raise Refused("Name a file: `/image ~/picture.png`.")
    workspace = errand.seat.chat.workspace
    candidates = [errand.words, *split_words(errand.words)[:1]]
    if errand.words.startswith("file://"):
        candidates.append(unquote(urlsplit(errand.words).path))
    for candidate in candidates:
        file = _resolved(candidate, workspace)
        if file is not None:
            return file
    raise NotFound(f"There is no file `{candidates[-1]}`.")


def _resolved(path: str, workspace: Workspace) -> Path | None:
    try:
        file = workspace.resolve(path)
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):  # too long, in the home of nobody, with a character that none has
        return None


COMMAND = Command(
    name="image",
    category="Turn",
    help="Show the model a picture with the next message.",
    hint="<file>",
    where="terminal",
    run=run,
)
