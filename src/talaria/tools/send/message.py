"""The tool that sends a message to another chat, or into a file."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.sending import ORIGIN, Courier, Reachable
from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import Ambiguous, NotFound, ToolFailed
from talaria.tools.files.documents import refuse_mask, save_file

LIST = "list"
_LOCAL = "local:"
_LONGEST = 40_000
_SHOWN = 50


class SendMessageArguments(Struct, frozen=True):
    """Where to, and what."""

    target: Annotated[
        str,
        Meta(
            description="A network's name (the owner's home there), `telegram:Family`, `discord:#ops`,"
            " `platform:chat:thread`, `local:PATH`, `origin` (here), or `list`"
        ),
    ]
    text: Annotated[str, Meta(description="Markdown; empty to `list`")] = ""


class SendMessage:
    """Sends to chats and files; ``guest`` is for others than the owner of the agent, who may send to where they are."""

    name = "send_message"
    description = "Send a message to another chat; `list` shows which there are. To answer here just answer."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SendMessageArguments

    def __init__(self, courier: Courier, *, guest: bool = False) -> None:
        self._courier = courier
        self._guest = guest

    def deed(self, arguments: SendMessageArguments) -> Deed:
        """Say what is sent, and to whom if that is not the person themself."""
        target = arguments.target.strip()
        if target.startswith(_LOCAL) and not self._guest:
            return Deed("write", target.removeprefix(_LOCAL))
        # A guest is refused whatever else there is, and a network's name alone is the home of the owner.
        is_own = self._guest or target in (LIST, ORIGIN) or not target.partition(":")[2].strip()
        return Deed("send", f"{target}: {arguments.text}" if arguments.text else target, "" if is_own else target)

    async def run(self, arguments: SendMessageArguments, call: Call) -> ToolOutput:
        """Queue it and say so, or list what there is."""
        target = arguments.target.strip()
        if (self._guest or call.owner) and target != ORIGIN:
            raise ToolFailed("In this conversation messages can be sent to `origin` only.")
        if target == LIST:
            return ToolOutput(await self._listed(call))
        text = _checked(arguments.text)
        if target.startswith(_LOCAL):
            path = call.workspace.resolve(target.removeprefix(_LOCAL))
            await asyncio.to_thread(save_file, path, text.encode("utf-8", "surrogateescape"))
            return ToolOutput(f"Written to {path}.")
        return ToolOutput(await self._sent(target, text, call))

    async def _sent(self, target: str, text: str, call: Call) -> str:
        try:
            sent = await self._courier.send(target, text, call)
        except (NotFound, Ambiguous) as error:
            # The names of other chats are not for those who read along.
            raise ToolFailed("There is no such chat." if call.audience else str(error)) from error
        later = "" if sent.served else " No gateway is running: it goes out as soon as one does."
        return f"It is on its way to {sent.target}.{later}"

    async def _listed(self, call: Call) -> str:
        if call.audience:
            raise ToolFailed("Others read along here: which chats there are can be asked in a private chat.")
        chats = await self._courier.reachable()
        lines = [*map(_line, chats[:_SHOWN]), *([f"… and {len(chats) - _SHOWN} more"] if len(chats) > _SHOWN else [])]
        return "\n".join(lines) or "No chat is known yet: somebody has to write to me there first."


def _checked(text: str) -> str:
    if not text.strip():
        raise ToolFailed("There is no text to send.")
    if len(text) > _LONGEST:
        raise ToolFailed(f"The text has {len(text):,} characters, and {_LONGEST:,} are the most: send a file instead.")
    refuse_mask(text)
    return text


def _line(chat: Reachable) -> str:
    name = f" {chat.name}" if chat.name else ""
    return f"{chat.target}{name} ({chat.kind}{', home' if chat.home else ''})"
