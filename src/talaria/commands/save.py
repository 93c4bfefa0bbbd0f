"""Slash command `/save`: save the transcript to a file."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path

from talaria.commands.command import Command, CommandContext
from talaria.core.errors import Refused
from talaria.core.formatting import pluralize
from talaria.sessions.transcript_export import FORMATS, export_file_name, format_inline_code, load_transcript

_JSON = "--json"
_OWNER_ONLY = 0o600


async def run_save(context: CommandContext) -> None:
    """Write the whole transcript and show its path; never overwrites a file."""
    path_text, format_name = _parse_arguments(context.arguments)
    session_id = context.active_session.session_id
    transcript = await context.active_session.store.read(lambda tx: load_transcript(tx, session_id))
    if not transcript.messages:
        raise Refused("There is nothing to save: nothing has been said here yet.")
    suffix, write = FORMATS[format_name]
    path = context.active_session.chat.workspace.resolve(path_text or ".")
    text = write(transcript, context.application.zone)
    saved_path = await asyncio.to_thread(_write_new_file, path, export_file_name(transcript.session, suffix), text)
    context.surface.show(
        f"Saved {pluralize(len(transcript.messages), 'message')} to {format_inline_code(str(saved_path))}."
    )


async def offer_save_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the only option."""
    return [(_JSON, "everything, as JSON")]


def _parse_arguments(text: str) -> tuple[str, str]:
    """Return the file name and the format; raises `Refused`."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise Refused(f"`{text}`: a closing quotation mark is missing.") from error
    files = [word for word in arguments if word != _JSON]
    if len(files) > 1 or (files and files[0].startswith("-")):
        raise Refused("`/save [file] [--json]` takes one file. Put a name with spaces in quotation marks.")
    return "".join(files), "json" if _JSON in arguments else "markdown"


def _write_new_file(path: Path, name: str, text: str) -> Path:
    """Write a new file readable by the owner only; in a folder, ``name`` is its name.

    Raises `Refused` if it exists or cannot be written.
    """
    if path.is_dir():
        path /= name
    try:
        path.touch(_OWNER_ONLY, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise Refused(f"{path} already exists. Choose another name.") from error
    except OSError as error:
        raise Refused(f"Can't write {path}: {error.strerror or error}.") from error
    return path


SAVE = Command(
    name="save",
    category="Session",
    help="Save the conversation to a file, as Markdown or JSON.",
    hint="[file] [--json]",
    who="owner",
    run=run_save,
    offers=offer_save_choices,
)
