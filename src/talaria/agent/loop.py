"""The turn loop: model, tools, model, until there is an answer or a limit."""

import asyncio
import logging
import time
from typing import Protocol

from msgspec import Struct, structs

from talaria.agent.context_window import (
    ContextView,
    ContextWindow,
    make_pictures_message,
    make_results_message,
)
from talaria.agent.environment import Limits, TurnControl, TurnEnvironment
from talaria.agent.model_calls import ModelAnswer, ModelCalls, estimate_max_cost
from talaria.agent.tool_dispatch import STOPPED, ToolDispatcher
from talaria.agent.toolbox import Toolbox
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import Effort, ModelInfo, ModelReasoning, ModelRequest, ModelText
from talaria.contracts.stores.turns import Hold
from talaria.contracts.turns import ModelStep, TurnLog
from talaria.core.errors import ContextTooLong, MalformedReply, OverBudget, PriceUnknown, StoreError, TalariaError
from talaria.core.events import (
    ModelCalled,
    Noticed,
    PersonJoined,
    ReasoningAdded,
    TextAdded,
    TurnAnswered,
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.messages import Message, Text, ToolCall, ToolResult

_REPEATED_FAILURE = "I kept making the same call and it kept failing. How should I continue?"
_LIMIT_TEXTS = {
    "iterations": "I stopped after {limit} steps. Say `go on` if you want me to continue.",
    "tokens": "I stopped: this turn reached its limit of {limit} tokens.",
    "money": "I stopped: this turn reached its cost limit.",
    "time": "I stopped: this turn reached its limit of {limit:.0f} seconds.",
}

_NO_CONTROL = TurnControl()

log = logging.getLogger(__name__)


class ModelOptions(Struct, frozen=True, kw_only=True):
    """Options of model calls; fixed for the agent's life, since they are part of every request's prefix."""

    instructions: str = ""
    effort: Effort = ""
    max_output_tokens: int | None = None
    temperature: float | None = None


class AgentLoop:
    """Runs agent turns with a fixed model, and with a tool set and system prompt that change only between turns."""

    def __init__(
        self,
        calls: ModelCalls,
        info: ModelInfo,
        toolbox: Toolbox,
        options: ModelOptions,
        window: ContextWindow,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.calls = calls
        self.info = info
        self.toolbox = toolbox
        self.options = options
        self.window = window
        self.clock = clock or SystemClock()

    def use_prompt(self, toolbox: Toolbox, instructions: str) -> None:
        """Use other tools and instructions from the next turn on; the caller records why the prefix changes."""
        self.toolbox = toolbox
        self.options = structs.replace(self.options, instructions=instructions)

    async def take_turn(
        self, turn: TurnLog, environment: TurnEnvironment, control: TurnControl = _NO_CONTROL
    ) -> TurnEnd:
        """Run a turn until it is answered, stopped, out of budget or failed.

        A turn that was cut off continues after its last saved step. Cancelling ends it at once; if
        ``control.stopped()`` says that a person stopped it, the reply and the tool results so far are saved first.
        """
        limits = environment.limits()
        work = _Turn(self, turn, environment, control, limits)
        try:
            async with asyncio.timeout(limits.seconds):
                end = await work.run_to_end()
        except TimeoutError:
            end = await work.interrupt(TurnOutOfBudget("time", _LIMIT_TEXTS["time"].format(limit=limits.seconds)))
        except asyncio.CancelledError:
            if control.stopped():
                environment.publish(await asyncio.shield(work.stop()))
            raise
        except StoreError as error:  # not even its end could be stored: it is resumed when the store is back
            log.warning("turn interrupted in session %s: %s", turn.session_id, error)
            raise
        except PriceUnknown as error:
            log.warning("session %s: %s", turn.session_id, error)
            end = await work.interrupt(TurnFailed(error.public, details=error.for_owner))
        except OverBudget as error:
            log.info("session %s: %s", turn.session_id, error)
            end = await work.interrupt(TurnOutOfBudget("money", error.public))
        except TalariaError as error:
            log.warning("turn failed in session %s: %s", turn.session_id, error)
            end = await work.interrupt(TurnFailed(error.public, passing=error.passing, details=error.for_owner))
        except Exception:  # a bug ends the turn, not the process
            log.exception("turn failed in session %s", turn.session_id)
            end = await work.interrupt(TurnFailed(TalariaError.public))
        work.publish(end)
        return end


class AgentRenewal(Protocol):
    """Lets the tools and prompt of an agent follow what has changed since its last turn."""

    async def __call__(self, agent: AgentLoop, *, may_wait: bool) -> bool:
        """Return whether the agent has another prompt now; without ``may_wait`` a message isn't stored yet."""


class _Turn:
    """One turn in progress: what was spent, and text that is not stored yet."""

    def __init__(
        self, agent: AgentLoop, turn: TurnLog, environment: TurnEnvironment, control: TurnControl, limits: Limits
    ) -> None:
        self._agent = agent
        self._turn = turn
        self._environment = environment
        self._control = control
        self._limits = limits
        self._dispatch: ToolDispatcher | None = None
        self._view: ContextView | None = None
        self._partial = ""
        self._calls: list[ToolCall] = []
        self._tokens = 0
        self._cost = 0
        self._may_have_caps = turn.opening is None or turn.opening.has_caps

    async def run_to_end(self) -> TurnEnd:
        opening = self._turn.opening
        view = self._view = await self._agent.window.open(opening.history if opening is not None else None)
        messages, self._calls = view.messages, view.open_calls
        if self._calls:
            self._may_have_caps = True  # these calls may take long
            await self._run_calls(resumed=True)
        elif not messages or messages[-1].role not in ("user", "tool"):  # nobody waits for a reply
            return await self._end(TurnAnswered(messages[-1].text if messages else ""), None, None)
        for _ in range(self._limits.iterations):
            await self._add_joined_messages()
            answered, step = await self._ask_model()
            reply = answered.reply.message
            self._calls = [part for part in reply.parts if isinstance(part, ToolCall)]
            if not self._calls:
                return await self._end(TurnAnswered(reply.text), reply, step)
            await self._save([reply], step)
            dispatch = await self._run_calls()
            if dispatch.is_hopeless:
                return await self._end(TurnFailed(_REPEATED_FAILURE), None, None)
            spent = self._find_spent_limit()
            if spent is not None:
                return await self._end(spent, None, None)
        text = _LIMIT_TEXTS["iterations"].format(limit=self._limits.iterations)
        return await self._end(TurnOutOfBudget("iterations", text), None, None)

    async def stop(self) -> TurnEnd:
        """End the turn on request of a person."""
        if self._view is None:  # stopped before it was read: a resumed turn may have open calls
            self._view = await self._agent.window.open()
            self._calls = self._view.open_calls
        return await self.interrupt(TurnStopped())

    async def interrupt(self, end: TurnEnd) -> TurnEnd:
        """Store text and results so far in valid form, and end the turn, unless it has ended already."""
        if self._calls:
            done = self._dispatch.results if self._dispatch is not None else {}
            results = [done.get(call.id, ToolResult(call.id, STOPPED, failed=True)) for call in self._calls]
            await self._save([make_results_message(results, self._agent.clock.now())])
        partial = self._make_message(self._partial) if self._partial else None
        return await self._turn.finish(end, partial)

    async def _ask_model(self) -> tuple[ModelAnswer, ModelStep]:
        try:
            return await self._call_model()
        except ContextTooLong:
            window = self._agent.window
            await window.open()
            if not await window.compact(self._environment.publish):
                raise
            self._view = await window.open()
            return await self._call_model()

    async def _call_model(self) -> tuple[ModelAnswer, ModelStep]:
        request, info = self._build_request(), self._agent.info
        shown = self._get_view().tokens
        if self._limits.cost_microdollars and not info.has_price:
            raise PriceUnknown(info.name)
        hold = await self._reserve(estimate_max_cost(request, info, shown))
        try:
            answered, step = await self._stream_reply(request)
        except BaseException:
            # An interrupted call has to be paid for as far as it went.
            partial_request = structs.replace(request, max_output_tokens=len(self._partial) // 3)
            spent = estimate_max_cost(partial_request, info, shown) if self._partial else 0
            await asyncio.shield(self._environment.budget.settle(hold, spent))
            raise
        if hold is not None:
            await self._environment.budget.settle(hold, step.usage.cost_microdollars)
        return answered, step

    async def _reserve(self, amount: int) -> Hold | None:
        """Reserve an amount for a call; the first one of a turn that began without caps needs none."""
        if not self._may_have_caps:
            self._may_have_caps = True
            return None
        return await self._environment.budget.reserve(amount, self._agent.info)

    async def _stream_reply(self, request: ModelRequest) -> tuple[ModelAnswer, ModelStep]:
        began = time.monotonic()
        first: float | None = None
        answered: ModelAnswer | None = None
        self._partial = ""
        async for event in self._agent.calls.reply(request):
            match event:
                case ModelText(text):
                    first = first or time.monotonic() - began
                    self._partial += text
                    self.publish(TextAdded(text))
                case ModelReasoning(text):
                    self.publish(ReasoningAdded(text))
                case Noticed():
                    self.publish(event)
                case ModelAnswer():
                    answered = event
        if answered is None:
            raise MalformedReply("the model's reply ended early")
        self._partial = ""
        step = self._record_usage(answered, time.monotonic() - began, first)
        self.publish(ModelCalled(step.model, step.usage, step.context, self._agent.window.limit))
        return answered, step

    def _record_usage(self, answered: ModelAnswer, seconds: float, first: float | None) -> ModelStep:
        info = answered.choice.info or self._agent.info
        if not info.has_price:  # a fallback: as expensive as the first model, as far as caps know
            info = self._agent.info
        usage = structs.replace(answered.reply.usage, calls=1, cost_microdollars=info.cost_of(answered.reply.usage))
        context = usage.input_tokens + usage.output_tokens
        self._tokens += context
        self._cost += usage.cost_microdollars
        self._agent.window.record_tokens(context)
        return ModelStep(
            model=answered.choice.model,
            usage=usage,
            seconds=seconds,
            first_text_seconds=first,
            context=context,
            has_price=info.has_price,
        )

    async def _run_calls(self, *, resumed: bool = False) -> ToolDispatcher:
        dispatch = self._dispatch or ToolDispatcher(
            self._agent.toolbox, self._turn, self._environment, self._control.context
        )
        self._dispatch = dispatch
        begun = await self._turn.read_started_calls() if resumed else None
        results = await dispatch.run(self._calls, begun)
        now = self._agent.clock.now()
        messages = [make_results_message(results, now)]
        if images := dispatch.take_images():
            messages.append(make_pictures_message(images, now))
        self._calls = []
        await self._save(messages)
        return dispatch

    async def _add_joined_messages(self) -> None:
        if joined := await self._control.joined():
            self._get_view().add(joined)
            for message in joined:
                self.publish(PersonJoined(message.text))

    async def _save(self, messages: list[Message], step: ModelStep | None = None) -> None:
        await self._turn.add(messages, step)
        self._get_view().add(messages)

    async def _end(self, end: TurnEnd, reply: Message | None, step: ModelStep | None) -> TurnEnd:
        return await self._turn.finish(end, reply, step)

    def _get_view(self) -> ContextView:
        assert self._view is not None
        return self._view

    def publish(self, event: TurnEvent) -> None:
        """Pass an event to all who follow the turn."""
        self._environment.publish(event)

    def _build_request(self) -> ModelRequest:
        options = self._agent.options
        return ModelRequest(
            model="",
            messages=tuple(self._get_view().messages),
            system=options.instructions,
            tools=self._agent.toolbox.specs,
            max_output_tokens=options.max_output_tokens,
            temperature=options.temperature,
            effort=options.effort,
            memo=self._agent.window.memo,
        )

    def _find_spent_limit(self) -> TurnOutOfBudget | None:
        tokens, cost = self._limits.tokens, self._limits.cost_microdollars
        if tokens is not None and self._tokens >= tokens:
            return TurnOutOfBudget("tokens", _LIMIT_TEXTS["tokens"].format(limit=tokens))
        if cost is not None and self._cost >= cost:
            return TurnOutOfBudget("money", _LIMIT_TEXTS["money"])
        return None

    def _make_message(self, text: str) -> Message:
        return Message(role="assistant", parts=(Text(text),), at=self._agent.clock.now())
