"""The tool that puts a file into the chat of its conversation."""

import asyncio
import hashlib
import mimetypes
import shutil
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.sending import ORIGIN, Courier
from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import NotFound, ToolFailed
from talaria.core.messages import File, Image
from talaria.core.pictures import picture_type
from talaria.tools.files.documents import failing, refuse_mask, require_file

_UNKNOWN = "application/octet-stream"


class SendFileArguments(Struct, frozen=True):
    """Which file, and what to say with it."""

    path: Annotated[str, Meta(min_length=1)]
    caption: str = ""


class SendFile:
    """Sends what a file holds at this moment, a copy of which is kept in ``folder``; ``limit`` is in bytes."""

    name = "send_file"
    description = "Send a file or a picture to the people in this chat."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SendFileArguments

    def __init__(self, courier: Courier, folder: Path, limit: int) -> None:
        self._courier = courier
        self._folder = folder
        self._limit = limit

    def deed(self, arguments: SendFileArguments) -> Deed:
        """Say what is shown to others: as dangerous as reading it."""
        return Deed("read", arguments.path)

    async def run(self, arguments: SendFileArguments, call: Call) -> ToolOutput:
        """Queue it and say so."""
        if not self._limit:
            raise ToolFailed("No files can be sent on this network: tell the people where it is, or what it says.")
        refuse_mask(arguments.caption)
        source = call.workspace.resolve(arguments.path)
        kept = await asyncio.to_thread(self._keep, source, call)
        try:
            sent = await self._courier.send(ORIGIN, arguments.caption.strip(), call, (kept,))
        except NotFound as error:
            raise ToolFailed(str(error)) from error
        later = "" if sent.served else " No gateway is running: it goes out as soon as one does."
        return ToolOutput(f"{source.name} is on its way to {sent.target}.{later}")

    def _keep(self, source: Path, call: Call) -> File | Image:
        """Copy the file, for the original may change before it goes out; the same call always into the same place."""
        with failing(source):
            size = require_file(source).st_size
            if not size:
                raise ToolFailed(f"{source} is empty.")
            if size > self._limit:
                raise ToolFailed(f"{source} has {size:,} bytes, and {self._limit:,} can be sent on this network.")
            identity = f"{call.context.turn_id} {call.id} {source}".encode("utf-8", "surrogateescape")
            folder = self._folder / hashlib.sha256(identity).hexdigest()[:16]
            folder.mkdir(parents=True, exist_ok=True)
            copy = Path(shutil.copyfile(source, folder / source.name))
            with copy.open("rb") as opened:
                picture = picture_type(opened.read(16))
        if picture:
            return Image(str(copy), picture)
        return File(str(copy), source.name, mimetypes.guess_type(source.name)[0] or _UNKNOWN)
