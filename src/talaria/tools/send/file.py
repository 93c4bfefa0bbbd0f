"""The send_file tool: send a file to the session's chat, or attach it to the answer."""

import asyncio
import hashlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.message_sender import ORIGIN, MessageSender
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import NotFound, ToolFailed
from talaria.core.messages import File, Image, image_type
from talaria.tools.files.text_file import failing, refuse_mask, require_file

_UNKNOWN = "application/octet-stream"


class SendFileArguments(Struct, frozen=True):
    """A file and its caption."""

    path: Annotated[str, Meta(min_length=1)]
    caption: str = ""


class SendFile:
    """Sends the current content of a file, copied to ``folder``; ``limit`` is in bytes.

    Without a ``courier`` there is no chat: the file is part of the result, for the surface to deliver.
    """

    name = "send_file"
    description = "Send a file or image to the people in this chat."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SendFileArguments

    def __init__(self, courier: MessageSender | None, folder: Path, limit: int) -> None:
        self._courier = courier
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
        kept = await asyncio.to_thread(self._keep, source, call)
        if self._courier is None:
            return ToolOutput(f"Attached {source.name} to your answer.", files=(kept,))
        try:
            sent = await self._courier.send(ORIGIN, arguments.caption.strip(), call, (kept,))
        except NotFound as error:
            raise ToolFailed(str(error)) from error
        later = "" if sent.served else " No gateway is running; it will be sent once one starts."
        return ToolOutput(f"Sending {source.name} to {sent.target}.{later}")

    def _keep(self, source: Path, call: Call) -> File | Image:
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
