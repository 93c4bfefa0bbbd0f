"""Tools that reach people: ask a question, send a message to another chat, and send a file to the chat."""

import asyncio
import hashlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import ORIGIN, Call, Effect, MessageSender, ProposedAction, ReachableChat, ToolOutput
from talaria.core.errors import Ambiguous, NotFound, ToolFailed
from talaria.core.messages import File, Image, image_type
from talaria.tools.files.text_file import failing, refuse_mask, require_file, save_file

_NOBODY = "No answer in time. Choose the safer option yourself, and state what you assumed."
LIST = "list"
_LOCAL = "local:"
_LONGEST = 40_000
_SHOWN = 50
_UNKNOWN = "application/octet-stream"


class ClarifyArguments(Struct, frozen=True):
    """The question."""

    question: Annotated[str, Meta(min_length=1)]
    choices: Annotated[list[str], Meta(max_length=8)] = []


class Clarify:
    """Asks the person one question and waits for the answer."""

    name = "clarify"
    description = "Ask the person a question that only they can answer."
    effect = Effect.READS
    arguments: type[Struct] = ClarifyArguments

    def proposed_action(self, arguments: ClarifyArguments) -> ProposedAction:
        """Describe the question."""
        return ProposedAction("other", arguments.question)

    async def run(self, arguments: ClarifyArguments, call: Call) -> ToolOutput:
        """Return the answer, or that there is none."""
        choices = tuple(dict.fromkeys(choice.strip() for choice in arguments.choices if choice.strip()))
        answer = await call.person.ask(arguments.question.strip(), choices)
        return ToolOutput(_NOBODY if answer is None else f"The person answered: {answer}")


class SendMessageArguments(Struct, frozen=True):
    """A target and a text."""

    target: Annotated[
        str,
        Meta(
            description="A network (the owner's home chat there), `telegram:Family`, `discord:#ops`, "
            "`platform:chat:thread`, `local:PATH`, `origin` (here), or `list`"
        ),
    ]
    text: Annotated[str, Meta(description="Markdown; empty for `list`")] = ""


class SendMessage:
    """Sends to chats and files; a ``guest``, anyone but the agent's owner, may only send to the current chat."""

    name = "send_message"
    description = "Send a message to another chat; `list` shows the chats. To answer here, just answer."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SendMessageArguments

    def __init__(self, sender: MessageSender, *, guest: bool = False) -> None:
        self._sender = sender
        self._guest = guest

    def proposed_action(self, arguments: SendMessageArguments) -> ProposedAction:
        """Describe what is sent, and to whom if it is another person."""
        target = arguments.target.strip()
        if target.startswith(_LOCAL) and not self._guest:
            return ProposedAction("write", target.removeprefix(_LOCAL))
        # Guests are refused in any case, and a network's name alone means the owner's home chat.
        is_own = self._guest or target in (LIST, ORIGIN) or not target.partition(":")[2].strip()
        return ProposedAction(
            "send", f"{target}: {arguments.text}" if arguments.text else target, "" if is_own else target
        )

    async def run(self, arguments: SendMessageArguments, call: Call) -> ToolOutput:
        """Queue the message and report it, or list the chats."""
        target = arguments.target.strip()
        if (self._guest or call.owner) and target != ORIGIN:
            raise ToolFailed("In this conversation you can only send messages to `origin`.")
        if target == LIST:
            return ToolOutput(await self._list_chats(call))
        text = _check_text(arguments.text)
        if target.startswith(_LOCAL):
            path = call.workspace.resolve(target.removeprefix(_LOCAL))
            await asyncio.to_thread(save_file, path, text.encode("utf-8", "surrogateescape"))
            return ToolOutput(f"Written to {path}.")
        return ToolOutput(await self._send_text(target, text, call))

    async def _send_text(self, target: str, text: str, call: Call) -> str:
        try:
            sent = await self._sender.send(target, text, call)
        except (NotFound, Ambiguous) as error:
            # The names of other chats must not be shown to an audience.
            raise ToolFailed("There is no such chat." if call.audience else str(error)) from error
        later = "" if sent.served else " No gateway is running; it will be sent once one starts."
        return f"Sending to {sent.target}.{later}"

    async def _list_chats(self, call: Call) -> str:
        if call.audience:
            raise ToolFailed("Other people can read this chat. Ask for the list of chats in a private chat.")
        chats = await self._sender.list_reachable()
        lines = [
            *map(_describe_chat, chats[:_SHOWN]),
            *([f"… and {len(chats) - _SHOWN} more"] if len(chats) > _SHOWN else []),
        ]
        return "\n".join(lines) or "No chats yet. Someone has to write to me there first."


class SendFileArguments(Struct, frozen=True):
    """A file and its caption."""

    path: Annotated[str, Meta(min_length=1)]
    caption: str = ""


class SendFile:
    """Sends the current content of a file, copied to ``folder``; ``limit`` is in bytes.

    Without a ``sender`` there is no chat: the file is part of the result, for the surface to deliver.
    """

    name = "send_file"
    description = "Send a file or image to the people in this chat."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SendFileArguments

    def __init__(self, sender: MessageSender | None, folder: Path, limit: int) -> None:
        self._sender = sender
        self._folder = folder
        self._limit = limit

    def proposed_action(self, arguments: SendFileArguments) -> ProposedAction:
        """Describe what is shown to others: as dangerous as reading it."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: SendFileArguments, call: Call) -> ToolOutput:
        """Queue the file and report it."""
        if not self._limit:
            raise ToolFailed("This network can't send files. Tell the people where the file is, or what it says.")
        refuse_mask(arguments.caption)
        source = call.workspace.resolve(arguments.path)
        attachment = await asyncio.to_thread(self._copy_file, source, call)
        if self._sender is None:
            return ToolOutput(f"Attached {source.name} to your answer.", files=(attachment,))
        try:
            sent = await self._sender.send(ORIGIN, arguments.caption.strip(), call, (attachment,))
        except NotFound as error:
            raise ToolFailed(str(error)) from error
        later = "" if sent.served else " No gateway is running; it will be sent once one starts."
        return ToolOutput(f"Sending {source.name} to {sent.target}.{later}")

    def _copy_file(self, source: Path, call: Call) -> File | Image:
        """Copy the file, since the original may change before it is sent; the same call uses the same copy."""
        with failing(source):
            size = require_file(source).st_size
            if not size:
                raise ToolFailed(f"{source} is empty.")
            if size > self._limit:
                raise ToolFailed(f"{source} has {size:,} bytes; this network's limit is {self._limit:,}.")
            identity = f"{call.context.turn_id} {call.id} {source}".encode("utf-8", "surrogateescape")
            folder = self._folder / hashlib.sha256(identity).hexdigest()[:16]
            folder.mkdir(parents=True, exist_ok=True)
            import shutil  # noqa: PLC0415 (loaded with the first file)

            copy = Path(shutil.copyfile(source, folder / source.name))
            with copy.open("rb") as opened:
                picture = image_type(opened.read(16))
        if picture:
            return Image(str(copy), picture)
        import mimetypes  # noqa: PLC0415 (loaded with the first file)

        return File(str(copy), source.name, mimetypes.guess_type(source.name)[0] or _UNKNOWN)


def _check_text(text: str) -> str:
    if not text.strip():
        raise ToolFailed("There is no text to send.")
    if len(text) > _LONGEST:
        raise ToolFailed(f"The text has {len(text):,} characters; the limit is {_LONGEST:,}. Send a file instead.")
    refuse_mask(text)
    return text


def _describe_chat(chat: ReachableChat) -> str:
    name = f" {chat.name}" if chat.name else ""
    return f"{chat.target}{name} ({chat.kind}{', home' if chat.home else ''})"
