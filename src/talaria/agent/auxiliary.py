"""Auxiliary model calls: summaries, titles, and short questions."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from msgspec import Struct, structs

from talaria.agent.context_window import estimate_tokens
from talaria.agent.environment import Budget, UnlimitedBudget
from talaria.agent.model_calls import ModelAnswer, ModelCalls, estimate_max_cost
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ModelInfo, ModelReply, ModelRequest, Provider
from talaria.core.errors import MalformedReply, ModelRefused
from talaria.core.messages import Image, Message, Text, ToolCall, ToolResult, Usage

_SUMMARY = (
    "You maintain the memory of a long conversation between a person and their agent. Write down what must not "
    "be forgotten, under these headings, omitting empty ones: Goal; Decisions; Facts and names; Files and "
    "commands; Done; Open. Keep numbers, paths, names and quotations exact. Write in the language of the "
    "conversation."
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
    """The model for auxiliary calls, which count towards ``budget``; also the summariser."""

    def __init__(self, calls: ModelCalls, budget: Budget | None = None) -> None:
        self._calls = calls
        self._budget = budget or UnlimitedBudget()

    @property
    def has_price(self) -> bool:
        """Return whether the cost of a call can be calculated."""
        return (self._calls.first.info or _UNKNOWN).has_price

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        """Return a summary of the messages that continues an earlier one."""
        before = f"The summary so far:\n{earlier}\n\nThe messages after it:\n" if earlier else ""
        text = before + "\n\n".join(map(_render_message, messages))
        summary, _ = await self.answer(_SUMMARY, text, max_tokens=_SUMMARY_TOKENS)
        return summary

    async def generate_title(self, messages: Sequence[Message]) -> str:
        """Return a title for a session with this beginning."""
        text = "\n\n".join(map(_render_message, messages))[:_PART_LENGTH]
        answer, _ = await self.answer(_TITLE, text, max_tokens=_TITLE_TOKENS)
        line = answer.strip().partition("\n")[0].strip(" \"'“”.#*")
        return line[:_TITLE_LENGTH]

    async def answer(self, instructions: str, text: str, *, max_tokens: int) -> tuple[str, Usage]:
        """Return the answer to a question and its usage; raises `OverBudget` if that may not be spent."""
        request = _request(instructions, text, max_tokens)
        info = self._calls.first.info or _UNKNOWN
        most = estimate_max_cost(request, info, estimate_tokens(request.messages))
        hold = await self._budget.reserve(most, info)
        usage = Usage()
        try:
            answered = await self._request_answer(request)
            answering = answered.choice.info or info
            prices = answering if answering.has_price else info
            usage = structs.replace(
                answered.reply.usage, calls=1, cost_microdollars=prices.cost_of(answered.reply.usage)
            )
        finally:
            await asyncio.shield(self._budget.settle(hold, usage.cost_microdollars))
        return answered.reply.message.text, usage

    async def _request_answer(self, request: ModelRequest) -> ModelAnswer:
        async for event in self._calls.reply(request):
            if isinstance(event, ModelAnswer):
                if event.reply.stop == "refused":
                    raise ModelRefused("the model declined")
                return event
        raise MalformedReply("the model's reply ended early")


def _request(instructions: str, text: str, max_tokens: int) -> ModelRequest:
    question = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    return ModelRequest(model="", messages=(question,), system=instructions, max_output_tokens=max_tokens)


def _render_message(message: Message) -> str:
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


_OUTPUT_TOKENS = 500


class VisionModel(Struct, frozen=True):
    """A model that can see, and its provider."""

    provider: Provider
    model: str


async def describe_image(vision: VisionModel, image: Image, question: str, clock: Clock | None = None) -> str:
    """Return the model's answer about an image; raises a `ProviderError`."""
    now = (clock or SystemClock()).now()
    request = ModelRequest(
        model=vision.model,
        messages=(Message(role="user", parts=(Text(question), image), at=now),),
        max_output_tokens=_OUTPUT_TOKENS,
    )
    async with aclosing(vision.provider.reply(request)) as events:
        async for event in events:
            if isinstance(event, ModelReply) and event.message.text.strip():
                return event.message.text.strip()
    raise MalformedReply("the vision model returned no text")
