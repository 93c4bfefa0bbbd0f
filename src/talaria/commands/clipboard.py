"""Slash commands `/copy`, `/image` and `/paste`: clipboard and images."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from talaria.commands.arguments import require_terminal, split_arguments
from talaria.commands.command import Command, CommandContext
from talaria.contracts.tool import Workspace
from talaria.core.errors import NotFound, Refused
from talaria.core.messages import Image, image_type

_CODE_BLOCK = re.compile(
    r"^ {0,3}(`{3,}+|~{3,}+)[^`\n]*\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def find_code_blocks(text: str) -> list[str]:
    """Return the content of each code block, without fences; the last one may be unclosed."""
    return [body.rstrip("\n") for _, body in _CODE_BLOCK.findall(text)]


CODE = "code"
_RECENT_MESSAGES = 200


async def run_copy(context: CommandContext) -> None:
    """Copy the reply, one of its code blocks by number, or a chosen one."""
    reply, argument = await _read_last_reply(context), context.arguments.lower()
    if not argument:
        copied_text, label = reply, "The last reply"
    else:
        blocks = find_code_blocks(reply)
        number = (
            await _choose_block(context, blocks)
            if argument == CODE
            else _parse_block_number(argument.removeprefix(CODE).strip(), blocks)
        )
        if number is None:
            return
        copied_text, label = blocks[number], f"Code block {number + 1} of {len(blocks)}"
    require_terminal(context).copy(copied_text)
    context.surface.show(f"{label} was copied to the clipboard ({len(copied_text):,} characters).")


async def _read_last_reply(context: CommandContext) -> str:
    session_id = context.active_session.session_id
    stored = await context.active_session.store.read(lambda tx: tx.messages.last(session_id, _RECENT_MESSAGES))
    replies = [one.message.text for one in stored if one.message.role == "assistant" and one.message.text.strip()]
    if not replies:
        raise NotFound("There is no reply to copy yet.")
    return replies[-1].strip()


async def _choose_block(context: CommandContext, blocks: Sequence[str]) -> int | None:
    if len(blocks) < 2:
        return _parse_block_number("1", blocks)
    return await context.surface.choose("Which code block?", [block.strip().partition("\n")[0] for block in blocks])


def _parse_block_number(argument: str, blocks: Sequence[str]) -> int:
    if not blocks:
        raise NotFound("The last reply has no code block.")
    if not argument.isdecimal():
        raise Refused("`/copy` copies the last reply, `/copy code` its only code block, `/copy 2` the second one.")
    if not 1 <= int(argument) <= len(blocks):
        raise NotFound(f"The last reply has no code block {argument}; it has {len(blocks)}.")
    return int(argument) - 1


async def offer_copy_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the parts of the reply that can be copied."""
    return [(CODE, "a code block in the last reply")]


COPY = Command(
    name="copy",
    category="Display",
    help="Copy the last reply, or a code block in it, to the clipboard.",
    hint="[code|number]",
    where="terminal",
    run=run_copy,
    offers=offer_copy_choices,
)


async def run_image(context: CommandContext) -> None:
    """Attach an image file."""
    file = await asyncio.to_thread(_find_image_file, context)
    kind = await asyncio.to_thread(detect_image_type, file)
    if kind is None:
        raise Refused(f"The model can't see `{file}`. It takes PNG, JPEG, GIF and WebP images.")
    require_terminal(context).attach(Image(str(file), kind))
    warning = (
        ""
        if context.active_session.chat.info.images
        else f" But `{context.active_session.chat.model}` can't see images."
    )
    context.surface.show(f"`{file.name}` will be sent with your next message.{warning}")


def detect_image_type(file: Path) -> str | None:
    """Return the image type of a file by its content, or ``None``; raises `Refused` if unreadable."""
    try:
        with file.open("rb") as stream:
            return image_type(stream.read(16))
    except OSError as error:
        raise Refused(f"Can't read `{file}`: {error.strerror}.") from error


def _find_image_file(context: CommandContext) -> Path:
    """Return the typed or dropped file: quoted, escaped, with ``~`` or as a ``file://`` URL."""
    if not context.arguments:
        raise Refused("Name a file, for example `/image ~/picture.png`.")
    workspace = context.active_session.chat.workspace
    candidates = [context.arguments, *split_arguments(context.arguments)[:1]]
    if context.arguments.startswith("file://"):
        candidates.append(unquote(urlsplit(context.arguments).path))
    for candidate in candidates:
        file = _resolve_file(candidate, workspace)
        if file is not None:
            return file
    raise NotFound(f"There is no file `{candidates[-1]}`.")


def _resolve_file(path: str, workspace: Workspace) -> Path | None:
    try:
        file = workspace.resolve(path)
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):  # name too long, unknown user after `~`, or invalid character
        return None


IMAGE = Command(
    name="image",
    category="Turn",
    help="Send an image with your next message.",
    hint="<file>",
    where="terminal",
    run=run_image,
)


async def run_paste(context: CommandContext) -> None:
    """Put clipboard text into the input line, or attach a clipboard image."""
    screen = require_terminal(context)
    match await screen.paste():
        case Image() as picture:
            screen.attach(picture)
            context.surface.show("The image will be sent with your next message.")
        case str(text) if text:
            screen.set_input_text(text)
        case _:
            context.surface.show("The clipboard is empty, or it can't be reached from here.")


PASTE = Command(
    name="paste",
    category="Turn",
    help="Paste text or an image from the clipboard into your next message.",
    where="terminal",
    run=run_paste,
)
