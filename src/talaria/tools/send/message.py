"""The send_message tool: send a message to another chat, or to a file."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.message_sender import ORIGIN, MessageSender, ReachableChat
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import Ambiguous, NotFound, ToolFailed
from talaria.tools.files.text_file import refuse_mask, save_file

LIST = "list"
_LOCAL = "local:"
_LONGEST = 40_000
_SHOWN = 50


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

    def __init__(self, courier: MessageSender, *, guest: bool = False) -> None:
        self._courier = courier
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
            # The names of other chats must not be shown to an audience.
            raise ToolFailed("There is no such chat." if call.audience else str(error)) from error
        later = "" if sent.served else " No gateway is running; it will be sent once one starts."
        return f"Sending to {sent.target}.{later}"

    async def _listed(self, call: Call) -> str:
        if call.audience:
            raise ToolFailed("Other people can read this chat. Ask for the list of chats in a private chat.")
        chats = await self._courier.reachable()
        lines = [*map(_line, chats[:_SHOWN]), *([f"… and {len(chats) - _SHOWN} more"] if len(chats) > _SHOWN else [])]
        return "\n".join(lines) or "No chats yet. Someone has to write to me there first."


def _checked(text: str) -> str:
    if not text.strip():
        raise ToolFailed("There is no text to send.")
    if len(text) > _LONGEST:
        raise ToolFailed(f"The text has {len(text):,} characters; the limit is {_LONGEST:,}. Send a file instead.")
    refuse_mask(text)
    return text


def _line(chat: ReachableChat) -> str:
    name = f" {chat.name}" if chat.name else ""
    return f"{chat.target}{name} ({chat.kind}{', home' if chat.home else ''})"
