"""Model calls with retries, fallbacks, and continuation of interrupted replies."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from enum import Enum
from typing import Self

import msgspec
from msgspec import Struct, structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import (
    ModelEvent,
    ModelInfo,
    ModelReasoning,
    ModelReply,
    ModelRequest,
    ModelText,
    Provider,
)
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
    "Your reply was cut off by a lost connection. Continue exactly where it stopped: start with the very next "
    "character, repeat nothing, and don't mention the interruption."
)


_BYTES_PER_TOKEN = 3
_MILLION = 1_000_000
DEADLINE_EXCEEDED = "the model took too long over all attempts"
MIN_OVERLAP = 16


class ModelChoice(Struct, frozen=True):
    """A model and its provider."""

    provider: Provider
    model: str
    info: ModelInfo | None = None


class ModelAnswer(Struct, frozen=True):
    """The complete reply, and the model that gave it."""

    choice: ModelChoice
    reply: ModelReply


CallEvent = ModelText | ModelReasoning | Noticed | ModelAnswer


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Limits of a call: attempts per model, waits between them, total time."""

    attempts: int = 3
    first_wait: timedelta = timedelta(seconds=0.5)
    longest_wait: timedelta = timedelta(seconds=60)
    deadline: timedelta = timedelta(minutes=15)
    silent_wait: timedelta = timedelta(seconds=2)


class Reaction(Enum):
    """Reaction to an error."""

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


def estimate_max_cost(request: ModelRequest, info: ModelInfo, shown: int) -> int:
    """Return the maximum cost of a call with ``shown`` input tokens."""
    fixed = (len(request.system) + sum(len(bytes(tool.parameters)) for tool in request.tools)) // _BYTES_PER_TOKEN
    output = info.output_limit if request.max_output_tokens is None else request.max_output_tokens
    return ((shown + fixed) * info.input_price + output * info.output_price) // _MILLION + 1


class ModelCalls:
    """Calls the first model of a chain, and the next ones if it can't answer.

    Text that a person has read is never repeated: an interrupted reply is continued, by the same model or by the next
    one, and the complete reply joins the pieces. ``on_result`` gets every answer and every failure of a model; each
    call starts with the first model again.
    """

    def __init__(
        self,
        chain: Sequence[ModelChoice],
        patience: RetryPolicy | None = None,
        chance: Callable[[], float] | None = None,
        on_result: Callable[[ModelChoice, ProviderError | None], None] = lambda _choice, _error: None,
    ) -> None:
        if not chain:
            raise ValueError("a model chain needs at least one model")
        self._chain = tuple(chain)
        self._patience = patience or RetryPolicy()
        self._chance = chance or _random
        self._on_result = on_result

    @property
    def first(self) -> ModelChoice:
        """Return the first model of the chain."""
        return self._chain[0]

    async def reply(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        """Yield the reply as it grows, notices of long waits and other models, and last the complete answer.

        The model of ``request`` is replaced by that of each choice. Raises the last `ProviderError` if no model
        answered, at once if repeating is useless. A request for structured output is not streamed.
        """
        call = _Call(request, asyncio.get_running_loop().time() + self._patience.deadline.total_seconds())
        for index, choice in enumerate(self._chain):
            is_last = index == len(self._chain) - 1
            for attempt in range(1, self._patience.attempts + 1):
                try:
                    async with aclosing(call.ask(choice)) as events:
                        async for event in events:
                            yield event
                    self._on_result(choice, None)
                    return
                except ProviderError as error:
                    if _choose_reaction(error) is not Reaction.END:
                        self._on_result(choice, error)
                    wait = self._wait_after(error, attempt, call.seconds_left())
                    if wait is None and (
                        is_last or _choose_reaction(error) is Reaction.END or call.seconds_left() <= 0
                    ):
                        raise
                    notice = self._make_notice(wait, index)
                if notice:
                    yield notice
                if wait is None:
                    break
                await asyncio.sleep(wait)

    def _wait_after(self, error: ProviderError, attempt: int, seconds_left: float) -> float | None:
        """Return how long to wait before calling the same model again, or ``None`` for not at all."""
        patience = self._patience
        if _choose_reaction(error) is not Reaction.RETRY or attempt >= patience.attempts:
            return None
        longest = patience.longest_wait.total_seconds()
        backoff = patience.first_wait.total_seconds() * 2 ** (attempt - 1) * (0.5 + self._chance() / 2)
        asked = error.retry_after.total_seconds() if isinstance(error, ProviderBusy) else 0.0
        wait = max(min(backoff, longest), asked)
        return wait if wait <= longest and wait < seconds_left else None

    def _make_notice(self, wait: float | None, index: int) -> Noticed | None:
        if wait is None:
            return Noticed(f"{self._chain[index].model} can't answer. Trying {self._chain[index + 1].model} instead.")
        if wait < self._patience.silent_wait.total_seconds():
            return None
        return Noticed(f"{self._chain[index].model} can't answer yet. Trying again in {wait:.0f} s.")


class ReplySeam:
    """The seam of a continued reply: removes text that the model repeats there."""

    def __init__(self, sent: str) -> None:
        self._sent = sent
        self._held = ""
        self._is_open = bool(sent)

    def add(self, text: str) -> str:
        """Return the new part of ``text``, as soon as that is certain."""
        if not self._is_open:
            return text
        self._held += text
        fresh = self._find_new_text()
        if fresh is None:
            return ""
        self._is_open = False
        return fresh

    def take_rest(self) -> str:
        """Return the text held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held if self._is_open else ""

    def _find_new_text(self) -> str | None:
        start = self._sent.find(self._held[:MIN_OVERLAP])
        while start >= 0:
            overlap = self._sent[start:]
            if len(self._held) >= MIN_OVERLAP and self._held.startswith(overlap):
                return self._held[len(overlap) :]
            if overlap.startswith(self._held):
                return None
            start = self._sent.find(self._held[:MIN_OVERLAP], start + 1)
        return self._held


class _Call:
    """One reply in progress: the text already passed on, and the deadline."""

    def __init__(self, request: ModelRequest, deadline: float) -> None:
        self._request = request
        self._deadline = deadline
        self._is_quiet = request.output_schema is not None
        self._sent: list[str] = []

    def seconds_left(self) -> float:
        """Return the time left for all attempts together."""
        return self._deadline - asyncio.get_running_loop().time()

    async def ask(self, choice: ModelChoice) -> AsyncGenerator[CallEvent, None]:
        """Call once, continuing from where the last attempt stopped."""
        sent = "".join(self._sent)
        seam = ReplySeam(sent)
        replies = choice.provider.reply(self._build_next_request(choice.model, sent))
        reply: ModelReply | None = None
        async with aclosing(replies) as events, _Deadline(self._deadline) as deadline:
            while reply is None and (event := await deadline.next_of(events)) is not None:
                if isinstance(event, ModelReasoning):
                    yield event
                elif isinstance(event, ModelReply):
                    reply = event
                elif text := self._pass_on(seam.add(event.text)):
                    yield ModelText(text)
        if reply is None:
            raise MalformedReply(f"{choice.provider.name} ended without a reply")
        if text := self._pass_on(seam.take_rest()):
            yield ModelText(text)
        yield ModelAnswer(choice, self._join_pieces(reply) if sent else reply)

    def _build_next_request(self, model: str, sent: str) -> ModelRequest:
        messages = self._request.messages
        if sent.strip():
            at = messages[-1].at
            interrupted = Message(role="assistant", parts=(Text(sent),), at=at)
            messages = (*messages, interrupted, Message(role="user", parts=(Text(CONTINUE),), at=at))
        return msgspec.structs.replace(self._request, model=model, messages=messages)

    def _pass_on(self, text: str) -> str:
        if not text or self._is_quiet:
            return ""
        self._sent.append(text)
        return text

    def _join_pieces(self, reply: ModelReply) -> ModelReply:
        whole = Text("".join(self._sent))
        parts = [part for part in reply.message.parts if not isinstance(part, Text)]
        first_call = next((index for index, part in enumerate(parts) if isinstance(part, ToolCall)), len(parts))
        joined: tuple[Part, ...] = (*parts[:first_call], whole, *parts[first_call:])
        return msgspec.structs.replace(reply, message=msgspec.structs.replace(reply.message, parts=joined))


class _Deadline:
    """Ends a wait for the next event when time is up.

    One timer serves all waits: `asyncio.timeout` around each would cost more than everything else here.
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
            raise ProviderUnreachable(DEADLINE_EXCEEDED)
        task = self._waiting = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        try:
            return await anext(events, None)
        except asyncio.CancelledError as error:
            if self._is_over and task.uncancel() <= cancelled_before:
                raise ProviderUnreachable(DEADLINE_EXCEEDED) from error
            raise
        finally:
            self._waiting = None

    def _end(self) -> None:
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()


def _choose_reaction(error: ProviderError) -> Reaction:
    return next(REACTIONS[kind] for kind in type(error).__mro__ if kind in REACTIONS)


class ModelState(Struct, frozen=True):
    """The health of a model at its last call; without an ``error`` it answered.

    ``since`` is when its current series of failures started, ``failures`` is their total number ever.
    """

    model: str
    error: str = ""
    since: datetime | None = None
    failures: int = 0


class ModelHealth:
    """The result of the last call to each model; shared by all sessions of a process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._states: dict[str, ModelState] = {}

    @property
    def states(self) -> list[ModelState]:
        """Return all called models, by name."""
        return [self._states[name] for name in sorted(self._states)]

    def record_outcome(self, choice: ModelChoice, error: ProviderError | None) -> None:
        """Record an answer, or the reason for its absence."""
        name = f"{choice.provider.name}:{choice.model}"
        before = self._states.get(name, ModelState(name))
        if error is None:
            self._states[name] = structs.replace(before, error="", since=None)
        else:
            self._states[name] = ModelState(
                name, str(error) or error.public, before.since or self._clock.now(), before.failures + 1
            )


def _random() -> float:
    from random import random  # noqa: PLC0415 (loaded with the first retry)

    return random()  # noqa: S311 (spreads retries)
