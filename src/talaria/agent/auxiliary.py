"""Small jobs for a model beside the conversation: summaries and titles."""

from collections.abc import Sequence
from datetime import UTC, datetime

from talaria.agent.model_calls import Answered, ModelCalls
from talaria.contracts.provider import ModelRequest
from talaria.core.errors import MalformedReply, ModelRefused
from talaria.core.messages import Message, Text, ToolCall, ToolResult

_SUMMARY = (
    "You keep the memory of a long conversation between a person and their agent. Write what must not be forgotten,"
    " under these headings, leaving out those with nothing to say: Goal; Decisions; Facts and names; Files and"
    " commands; Done; Open. Keep numbers, paths, names and quotations exact. Write in the language of the conversation."
)
_TITLE = (
    "Give this conversation a title of at most six words, in its own language. Answer with the title alone, without"
    " quotation marks and without a full stop."
)
_SUMMARY_TOKENS = 2_000
_TITLE_TOKENS = 40
_TITLE_LENGTH = 80
_PART_LENGTH = 4_000


class Auxiliary:
    """One model for the jobs beside the conversation; implements `Summariser`."""

    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        """Return a summary of the messages that carries on an earlier one."""
        before = f"The summary so far:\n{earlier}\n\nWhat came behind it:\n" if earlier else ""
        return await self._ask(_SUMMARY, before + "\n\n".join(map(_told, messages)), _SUMMARY_TOKENS)

    async def title(self, messages: Sequence[Message]) -> str:
        """Return a title for a conversation that begins so."""
        answer = await self._ask(_TITLE, "\n\n".join(map(_told, messages))[:_PART_LENGTH], _TITLE_TOKENS)
        line = answer.strip().partition("\n")[0].strip(" \"'“”.#*")
        return line[:_TITLE_LENGTH]

    async def _ask(self, instructions: str, text: str, most_tokens: int) -> str:
        question = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        request = ModelRequest(model="", messages=(question,), system=instructions, max_output_tokens=most_tokens)
        async for event in self._calls.reply(request):
            if isinstance(event, Answered):
                if event.reply.stop == "refused":
                    raise ModelRefused("the model declined")
                return event.reply.message.text
        raise MalformedReply("the model's reply ended without its end")


def _told(message: Message) -> str:
    lines = [f"[{message.author or message.role}]"]
    for part in message.parts:
        match part:
            case Text(text) | ToolResult(text=text):
                lines.append(text[:_PART_LENGTH])
            case ToolCall(name=name, arguments=arguments):
                lines.append(f"calls {name} {arguments[:_PART_LENGTH]}")
            case _:
                lines.append(f"({type(part).__name__.lower()})")
    return "\n".join(lines)
