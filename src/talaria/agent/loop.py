"""The turn loop: model, tools, model, until there is an answer or a limit."""

import asyncio
import logging
import time

from msgspec import Struct, structs

from talaria.agent.budget import most_it_can_cost
from talaria.agent.conversation import awaits_reply, calls_in, open_calls, pictures_message, results_message
from talaria.agent.dispatch import STOPPED, Dispatch
from talaria.agent.model_calls import Answered, ModelCalls
from talaria.agent.repetition import Repetition
from talaria.agent.surroundings import Limits, Surroundings
from talaria.agent.toolbox import Toolbox
from talaria.agent.window import View, Window
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import Effort, ModelReasoning, ModelRequest, ModelText
from talaria.contracts.turn_log import ModelStep, TurnLog
from talaria.core.errors import ContextTooLong, MalformedReply, OverBudget, StoreError, TalariaError
from talaria.core.events import (
    ModelCalled,
    Noticed,
    PersonJoined,
    ReasoningAdded,
    TextAdded,
    TurnAnswered,
    TurnEnd,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.messages import Message, Text, ToolCall, ToolResult

_HOPELESS = "I kept making the same call, and it kept failing. Tell me how to go on."
_OUT_OF = {
    "iterations": "I stopped after {limit} steps. Say `go on` if I should continue.",
    "tokens": "I stopped: this turn has used its {limit} tokens.",
    "money": "I stopped: this turn has used what it may cost.",
    "time": "I stopped: this turn has used its {limit:.0f} seconds.",
}

log = logging.getLogger(__name__)


class Manner(Struct, frozen=True, kw_only=True):
    """How an agent asks its model; fixed for the agent's life, since it is part of every request's prefix."""

    instructions: str = ""
    effort: Effort = ""
    max_output_tokens: int | None = None
    temperature: float | None = None


class Agent:
    """Thinks: takes the turns of a conversation with one model, one set of tools and one set of instructions."""

    def __init__(
        self,
        calls: ModelCalls,
        info: ModelInfo,
        toolbox: Toolbox,
        manner: Manner,
        window: Window,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.calls = calls
        self.info = info
        self.toolbox = toolbox
        self.manner = manner
        self.window = window
        self.clock = clock or SystemClock()

    async def take_turn(self, turn: TurnLog, around: Surroundings, limits: Limits) -> TurnEnd:
        """Work on the conversation until it is answered, stopped, out of budget or failed.

        A turn that was cut off goes on behind its last saved step. Cancelling ends it at once; if
        ``around.stopped()`` says that a person wanted that, what was said and done so far is kept first.
        """
        work = _Turn(self, turn, around, limits)
        try:
            async with asyncio.timeout(limits.seconds):
                end = await work.until_end()
        except TimeoutError:
            end = await work.cut_off(TurnOutOfBudget("time", _OUT_OF["time"].format(limit=limits.seconds)))
        except asyncio.CancelledError:
            if around.stopped():
                around.emit(await asyncio.shield(work.cut_off(TurnStopped())))
            raise
        except StoreError as error:  # of which not even the end could be kept: it goes on when the store is back
            log.warning("turn cut off in session %s: %s", turn.session_id, error)
            raise
        except OverBudget as error:
            log.info("session %s: %s", turn.session_id, error)
            end = await work.cut_off(TurnOutOfBudget("money", error.public))
        except TalariaError as error:
            log.warning("turn failed in session %s: %s", turn.session_id, error)
            end = await work.cut_off(TurnFailed(error.public, passing=error.passing, details=error.for_owner))
        except Exception:  # a bug ends the turn, not the process
            log.exception("turn failed in session %s", turn.session_id)
            end = await work.cut_off(TurnFailed(TalariaError.public))
        around.emit(end)
        return end


class _Turn:
    """One turn in progress: what was spent, and what was said but not yet saved."""

    def __init__(self, agent: Agent, turn: TurnLog, around: Surroundings, limits: Limits) -> None:
        self._agent = agent
        self._turn = turn
        self._around = around
        self._limits = limits
        self._dispatch = Dispatch(agent.toolbox, turn, around)
        self._repetition = Repetition()
        self._view = View([], 0)
        self._partial = ""
        self._calls: list[ToolCall] = []
        self._tokens = 0
        self._cost = 0

    async def until_end(self) -> TurnEnd:
        self._view = await self._agent.window.open()
        messages = self._view.messages
        self._calls = open_calls(messages)
        if self._calls:
            await self._run_calls(resumed=True)
        elif not awaits_reply(messages):
            return await self._end(TurnAnswered(messages[-1].text if messages else ""), None, None)
        for _ in range(self._limits.iterations):
            await self._let_person_join()
            answered, step = await self._ask_model()
            reply = answered.reply.message
            self._calls = calls_in(reply)
            if not self._calls:
                return await self._end(TurnAnswered(reply.text), reply, step)
            await self._save([reply], step)
            await self._run_calls()
            if self._repetition.hopeless:
                return await self._end(TurnFailed(_HOPELESS), None, None)
            spent = self._spent_limit()
            if spent is not None:
                return await self._end(spent, None, None)
        text = _OUT_OF["iterations"].format(limit=self._limits.iterations)
        return await self._end(TurnOutOfBudget("iterations", text), None, None)

    async def cut_off(self, end: TurnEnd) -> TurnEnd:
        """Save what was said and done so far in valid form, and end the turn so."""
        if self._calls:
            done = self._dispatch.results
            results = [done.get(call.id, ToolResult(call.id, STOPPED, failed=True)) for call in self._calls]
            await self._save([results_message(results, self._agent.clock.now())])
        partial = self._message(self._partial) if self._partial else None
        await self._turn.finish(end, partial)
        return end

    async def _ask_model(self) -> tuple[Answered, ModelStep]:
        try:
            return await self._one_call()
        except ContextTooLong:
            window = self._agent.window
            await window.open()
            if not await window.shrink(self._around.emit):
                raise
            self._view = await window.open()
            return await self._one_call()

    async def _one_call(self) -> tuple[Answered, ModelStep]:
        request, info = self._request(), self._agent.info
        shown = self._view.tokens
        hold = await self._around.budget.reserve(most_it_can_cost(request, info, shown))
        try:
            answered, step = await self._follow(request)
        except BaseException:
            # A call that broke off was paid for all the same, as far as it went.
            said = structs.replace(request, max_output_tokens=len(self._partial) // 3)
            spent = most_it_can_cost(said, info, shown) if self._partial else 0
            await asyncio.shield(self._around.budget.settle(hold, spent))
            raise
        await self._around.budget.settle(hold, step.usage.cost_microdollars)
        return answered, step

    async def _follow(self, request: ModelRequest) -> tuple[Answered, ModelStep]:
        began = time.monotonic()
        first: float | None = None
        answered: Answered | None = None
        self._partial = ""
        async for event in self._agent.calls.reply(request):
            match event:
                case ModelText(text):
                    first = first or time.monotonic() - began
                    self._partial += text
                    self._around.emit(TextAdded(text))
                case ModelReasoning(text):
                    self._around.emit(ReasoningAdded(text))
                case Noticed():
                    self._around.emit(event)
                case Answered():
                    answered = event
        if answered is None:
            raise MalformedReply("the model's reply ended without its end")
        self._partial = ""
        return answered, self._account(answered, time.monotonic() - began, first)

    def _account(self, answered: Answered, seconds: float, first: float | None) -> ModelStep:
        info = answered.choice.info or self._agent.info
        usage = structs.replace(answered.reply.usage, calls=1, cost_microdollars=info.cost_of(answered.reply.usage))
        context = usage.input_tokens + usage.output_tokens
        self._tokens += context
        self._cost += usage.cost_microdollars
        self._agent.window.measured(context)
        self._around.emit(ModelCalled(answered.choice.model, usage, context, self._agent.window.limit))
        return ModelStep(
            model=answered.choice.model, usage=usage, seconds=seconds, first_text_seconds=first, context=context
        )

    async def _run_calls(self, *, resumed: bool = False) -> None:
        begun = await self._turn.begun_calls() if resumed else None
        results = self._repetition.watch(self._calls, await self._dispatch.run(self._calls, begun))
        now = self._agent.clock.now()
        said = [results_message(results, now)]
        if self._dispatch.images:
            said.append(pictures_message(self._dispatch.images, now))
            self._dispatch.images = []
        self._calls = []
        await self._save(said)

    async def _let_person_join(self) -> None:
        joined = await self._around.joined()
        self._view.add(joined)
        for message in joined:
            self._around.emit(PersonJoined(message.text))

    async def _save(self, messages: list[Message], step: ModelStep | None = None) -> None:
        await self._turn.add(messages, step)
        self._view.add(messages)

    async def _end(self, end: TurnEnd, reply: Message | None, step: ModelStep | None) -> TurnEnd:
        await self._turn.finish(end, reply, step)
        return end

    def _request(self) -> ModelRequest:
        manner = self._agent.manner
        return ModelRequest(
            model="",
            messages=tuple(self._view.messages),
            system=manner.instructions,
            tools=self._agent.toolbox.specs,
            max_output_tokens=manner.max_output_tokens,
            temperature=manner.temperature,
            effort=manner.effort,
            memo=self._agent.window.memo,
        )

    def _spent_limit(self) -> TurnOutOfBudget | None:
        tokens, cost = self._limits.tokens, self._limits.cost_microdollars
        if tokens is not None and self._tokens >= tokens:
            return TurnOutOfBudget("tokens", _OUT_OF["tokens"].format(limit=tokens))
        if cost is not None and self._cost >= cost:
            return TurnOutOfBudget("money", _OUT_OF["money"])
        return None

    def _message(self, text: str) -> Message:
        return Message(role="assistant", parts=(Text(text),), at=self._agent.clock.now())
