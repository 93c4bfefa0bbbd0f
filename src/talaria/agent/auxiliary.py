"""Small jobs for a model beside the conversation: summaries, titles, and questions with a short answer."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import structs

from talaria.agent.budget import Budget, most_it_can_cost
from talaria.agent.model_calls import Answered, ModelCalls
from talaria.agent.window import estimate
from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import ModelRequest
from talaria.core.errors import MalformedReply, ModelRefused
from talaria.core.messages import Message, Text, ToolCall, ToolResult, Usage

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
_UNKNOWN = ModelInfo(name="", known=False)


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

    async def answer(self, instructions: str, text: str, *, most_tokens: int, budget: Budget) -> tuple[str, Usage]:
        """Return the answer to a question and what it took; raises `OverBudget` where that may not be spent."""
        request = _request(instructions, text, most_tokens)
        info = self._calls.first.info or _UNKNOWN
        hold = await budget.reserve(most_it_can_cost(request, info, estimate(request.messages)))
        usage = Usage()
        try:
            answered = await self._answered(request)
            prices = answered.choice.info or info
            usage = structs.replace(
                answered.reply.usage, calls=1, cost_microdollars=prices.cost_of(answered.reply.usage)
            )
        finally:
            await asyncio.shield(budget.settle(hold, usage.cost_microdollars))
        return answered.reply.message.text, usage

    async def _ask(self, instructions: str, text: str, most_tokens: int) -> str:
        answered = await self._answered(_request(instructions, text, most_tokens))
        return answered.reply.message.text

    async def _answered(self, request: ModelRequest) -> Answered:
        async for event in self._calls.reply(request):
            if isinstance(event, Answered):
                if event.reply.stop == "refused":
                    raise ModelRefused("the model declined")
                return event
        raise MalformedReply("the model's reply ended without its end")


def _request(instructions: str, text: str, most_tokens: int) -> ModelRequest:
    question = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    return ModelRequest(model="", messages=(question,), system=instructions, max_output_tokens=most_tokens)


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
