"""`/save`: the conversation as a file."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused
from talaria.core.wording import counted
from talaria.sessions.transcripts import FORMATS, code, file_name, load_transcript

_JSON = "--json"
_OWNER_ONLY = 0o600


async def run(errand: Errand) -> None:
    """Write the whole transcript, and say where; never over something else."""
    wanted, form = _read(errand.words)
    session_id = errand.seat.session_id
    transcript = await errand.seat.store.read(lambda tx: load_transcript(tx, session_id))
    if not transcript.messages:
        raise Refused("Nothing has been said here yet: there is nothing to save.")
    suffix, write = FORMATS[form]
    path = errand.seat.chat.workspace.resolve(wanted or ".")
    text = write(transcript, errand.house.zone)
    written = await asyncio.to_thread(_write, path, file_name(transcript.session, suffix), text)
    errand.place.show(f"{counted(len(transcript.messages), 'message')} went to {code(str(written))}.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the one option there is."""
    return [(_JSON, "everything, for programs")]


def _read(words: str) -> tuple[str, str]:
    """Return the file that is meant, and which form it is to have."""
    try:
        given = shlex.split(words)
    except ValueError as error:
        raise Refused(f"`{words}`: a quotation mark is missing.") from error
    files = [word for word in given if word != _JSON]
    if len(files) > 1 or (files and files[0].startswith("-")):
        raise Refused("`/save [file] [--json]` takes one file; put a name with spaces between quotation marks.")
    return "".join(files), "json" if _JSON in given else "markdown"


def _write(path: Path, name: str, text: str) -> Path:
    """Write a file for the owner alone, in a folder under its own name."""
    if path.is_dir():
        path /= name
    try:
        path.touch(_OWNER_ONLY, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise Refused(f"{path} exists already; name another file.") from error
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


COMMAND = Command(
    name="save",
    category="Session",
    help="Write the conversation to a file: Markdown, or JSON.",
    hint="[file] [--json]",
    who="owner",
    run=run,
    offers=offers,
)
