"""Ask a model until it answers: retries, fall-backs, and replies that broke off continued where they stopped."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import Enum
from typing import Self

import msgspec
from msgspec import Struct

from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelRequest, ModelText, Provider
from talaria.core.errors import (
    BadKey,
    ContextTooLong,
    MalformedReply,
    ModelRefused,
    ModelUnknown,
    NoCredit,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
    ReplyTooLong,
)
from talaria.core.events import Noticed
from talaria.core.messages import Message, Part, Text, ToolCall

CONTINUE = (
    "Your reply was cut off by a broken connection. Continue it exactly where it stopped: "
    "begin with the very next character, repeat nothing, and do not mention the interruption."
)
TOO_LATE = "the model took too long, all attempts together"
SURE_REPEAT = 16


class ModelChoice(Struct, frozen=True):
    """A model and where to ask for it."""

    provider: Provider
    model: str
    info: ModelInfo | None = None


class Answered(Struct, frozen=True):
    """The whole reply, and who gave it."""

    choice: ModelChoice
    reply: ModelReply


CallEvent = ModelText | ModelReasoning | Noticed | Answered


class Patience(Struct, frozen=True, kw_only=True):
    """How much a call may cost in time: attempts with each model, waits between them, all of it together."""

    attempts: int = 3
    first_wait: timedelta = timedelta(seconds=0.5)
    longest_wait: timedelta = timedelta(seconds=60)
    deadline: timedelta = timedelta(minutes=15)
    silent_wait: timedelta = timedelta(seconds=2)


class Reaction(Enum):
    """What an error means for the call."""

    RETRY = "retry"
    NEXT = "next"
    END = "end"


REACTIONS: Mapping[type[ProviderError], Reaction] = {
    ProviderBusy: Reaction.RETRY,
    ProviderOverloaded: Reaction.RETRY,
    ProviderUnreachable: Reaction.RETRY,
    MalformedReply: Reaction.RETRY,
    BadKey: Reaction.NEXT,
    NoCredit: Reaction.NEXT,
    ModelUnknown: Reaction.NEXT,
    ReplyTooLong: Reaction.NEXT,
    ContextTooLong: Reaction.END,
    ModelRefused: Reaction.END,
    ProviderError: Reaction.NEXT,
}


class ModelCalls:
    """Calls the first model of a chain, and the next ones when it cannot answer.

    What a person has already read is never said again: a reply that breaks off is continued, by the same model or by
    the next one, and the whole reply joins the pieces. ``heard`` learns of every answer and of every failure that is
    the model's own; each call begins with the first model, whatever became of the one before.
    """

    def __init__(
        self,
        chain: Sequence[ModelChoice],
        patience: Patience | None = None,
        chance: Callable[[], float] = random.random,
        heard: Callable[[ModelChoice, ProviderError | None], None] = lambda _choice, _error: None,
    ) -> None:
        if not chain:
            raise ValueError("a chain has at least one model")
        self._chain = tuple(chain)
        self._patience = patience or Patience()
        self._chance = chance
        self._heard = heard

    @property
    def first(self) -> ModelChoice:
        """The model that is asked before all others."""
        return self._chain[0]

    async def reply(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        """Yield the reply as it grows, notices of long waits and other models, and last the whole with its choice.

        The model of ``request`` is replaced by that of each choice. Raises the last `ProviderError` when nobody
        answered, at once where asking again is useless. A request for structured output is not passed on in pieces.
        """
        call = _Call(request, asyncio.get_running_loop().time() + self._patience.deadline.total_seconds())
        for place, choice in enumerate(self._chain):
            is_last = place == len(self._chain) - 1
            for attempt in range(1, self._patience.attempts + 1):
                try:
                    async with aclosing(call.ask(choice)) as events:
                        async for event in events:
                            yield event
                    self._heard(choice, None)
                    return
                except ProviderError as error:
                    if _reaction(error) is not Reaction.END:
                        self._heard(choice, error)
                    wait = self._wait_after(error, attempt, call.seconds_left())
                    if wait is None and (is_last or _reaction(error) is Reaction.END or call.seconds_left() <= 0):
                        raise
                    notice = self._notice(wait, place)
                if notice:
                    yield notice
                if wait is None:
                    break
                await asyncio.sleep(wait)

    def _wait_after(self, error: ProviderError, attempt: int, seconds_left: float) -> float | None:
        """Return how long to wait before the same model is asked again, or ``None`` if it should not be."""
        patience = self._patience
        if _reaction(error) is not Reaction.RETRY or attempt >= patience.attempts:
            return None
        longest = patience.longest_wait.total_seconds()
        backoff = patience.first_wait.total_seconds() * 2 ** (attempt - 1) * (0.5 + self._chance() / 2)
        asked = error.retry_after.total_seconds() if isinstance(error, ProviderBusy) else 0.0
        wait = max(min(backoff, longest), asked)
        return wait if wait <= longest and wait < seconds_left else None

    def _notice(self, wait: float | None, place: int) -> Noticed | None:
        if wait is None:
            return Noticed(f"{self._chain[place].model} cannot answer; asking {self._chain[place + 1].model} instead.")
        if wait < self._patience.silent_wait.total_seconds():
            return None
        return Noticed(f"{self._chain[place].model} cannot answer yet; trying again in {wait:.0f} s.")


class Seam:
    """Where a continued reply meets what was said before; swallows what a model says twice there."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._held = ""
        self._is_open = bool(said)

    def add(self, text: str) -> str:
        """Return what of ``text`` is new, as soon as that is certain."""
        if not self._is_open:
            return text
        self._held += text
        fresh = self._fresh()
        if fresh is None:
            return ""
        self._is_open = False
        return fresh

    def rest(self) -> str:
        """Return what was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held if self._is_open else ""

    def _fresh(self) -> str | None:
        start = self._said.find(self._held[:SURE_REPEAT])
        while start >= 0:
            overlap = self._said[start:]
            if len(self._held) >= SURE_REPEAT and self._held.startswith(overlap):
                return self._held[len(overlap) :]
            if overlap.startswith(self._held):
                return None
            start = self._said.find(self._held[:SURE_REPEAT], start + 1)
        return self._held


class _Call:
    """One reply in the making: what was already passed on, and until when to try."""

    def __init__(self, request: ModelRequest, deadline: float) -> None:
        self._request = request
        self._deadline = deadline
        self._is_quiet = request.output_schema is not None
        self._said: list[str] = []

    def seconds_left(self) -> float:
        """Return how much time is left for all attempts together."""
        return self._deadline - asyncio.get_running_loop().time()

    async def ask(self, choice: ModelChoice) -> AsyncGenerator[CallEvent, None]:
        """Ask once, from where the last attempt stopped."""
        said = "".join(self._said)
        seam = Seam(said)
        replies = choice.provider.reply(self._next_request(choice.model, said))
        reply: ModelReply | None = None
        async with aclosing(replies) as events, _Deadline(self._deadline) as deadline:
            while reply is None and (event := await deadline.next_of(events)) is not None:
                if isinstance(event, ModelReasoning):
                    yield event
                elif isinstance(event, ModelReply):
                    reply = event
                elif text := self._passed_on(seam.add(event.text)):
                    yield ModelText(text)
        if reply is None:
            raise MalformedReply(f"{choice.provider.name} ended without a reply")
        if text := self._passed_on(seam.rest()):
            yield ModelText(text)
        yield Answered(choice, self._joined(reply) if said else reply)

    def _next_request(self, model: str, said: str) -> ModelRequest:
        messages = self._request.messages
        if said.strip():
            at = messages[-1].at
            broken_off = Message(role="assistant", parts=(Text(said),), at=at)
            messages = (*messages, broken_off, Message(role="user", parts=(Text(CONTINUE),), at=at))
        return msgspec.structs.replace(self._request, model=model, messages=messages)

    def _passed_on(self, text: str) -> str:
        if not text or self._is_quiet:
            return ""
        self._said.append(text)
        return text

    def _joined(self, reply: ModelReply) -> ModelReply:
        whole = Text("".join(self._said))
        parts = [part for part in reply.message.parts if not isinstance(part, Text)]
        first_call = next((place for place, part in enumerate(parts) if isinstance(part, ToolCall)), len(parts))
        joined: tuple[Part, ...] = (*parts[:first_call], whole, *parts[first_call:])
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=joined))


class _Deadline:
    """Ends a wait for the next event when time is up.

    One timer serves all waits: `asyncio.timeout` around each would cost more than all else that is done here.
    """

    def __init__(self, when: float) -> None:
        self._when = when
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Task[object] | None = None
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_at(self._when, self._end)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()

    async def next_of(self, events: AsyncGenerator[ModelEvent, None]) -> ModelEvent | None:
        """Return the next event, or ``None`` at the end."""
        if self._is_over:
            raise ProviderUnreachable(TOO_LATE)
        task = self._waiting = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        try:
            return await anext(events, None)
        except asyncio.CancelledError as error:
            if self._is_over and task.uncancel() <= cancelled_before:
                raise ProviderUnreachable(TOO_LATE) from error
            raise
        finally:
            self._waiting = None

    def _end(self) -> None:
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()


def _reaction(error: ProviderError) -> Reaction:
    return next(REACTIONS[kind] for kind in type(error).__mro__ if kind in REACTIONS)
