"""Public Python API: an agent for use in other programs, with plain functions as tools."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, get_type_hints

import msgspec
from msgspec import Struct

from talaria.app.application import open_application
from talaria.contracts.tool import Call, Effect, ProposedAction, Tool, ToolOutput
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import TurnAnswered, TurnEvent, TurnFailed, TurnOutOfBudget
from talaria.core.ids import new_id
from talaria.core.messages import Message, Text
from talaria.runtime.open_session import OpenRequest, OpenSession, SurfaceInfo
from talaria.settings.environment import process_environment
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles, find_home
from talaria.settings.secrets import read_secrets

__all__ = ["Agent", "Effect", "tool"]

SOURCE = "python"


class Agent:
    """Session with a model, for use from Python code.

    As an ``async with`` block it keeps the session open between questions; `run` asks a single one. Messages are stored
    in the profile's store. ``tools`` are plain functions, results of `tool`, or objects that implement `Tool`; ``None``
    selects the default tools.
    """

    def __init__(
        self,
        model: str = "",
        *,
        tools: Sequence[Tool | Callable[..., Any]] | None = (),
        instructions: str = "",
        profile: str = "",
        on_event: Callable[[TurnEvent], None] = lambda event: None,
    ) -> None:
        as_tools = None if tools is None else tuple(map(_as_tool, tools))
        self._request = OpenRequest(
            surface=SurfaceInfo(source=SOURCE, folder=Path.cwd(), attended=False),
            model=model,
            identity=instructions,
            tools=as_tools,
            titled=False,
        )
        self._profile = profile
        self._on_event = on_event
        self._stack = AsyncExitStack()
        self._session: OpenSession | None = None

    async def __aenter__(self) -> Self:
        environment = process_environment()
        profiles = Profiles(find_home(environment))
        profile = profiles.get(self._profile) if self._profile else profiles.active()
        settings, secrets = load_settings(profile, environment), read_secrets(profile, environment)
        jobs = await self._stack.enter_async_context(asyncio.TaskGroup())
        try:
            application = open_application(settings, profile, secrets, environment, self._stack)
            self._session = await application.open_session(self._request, self._stack, jobs)
            self._session.events.subscribe(self._on_event)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._session = None
        await self._stack.aclose()

    async def ask(self, text: str) -> str:
        """Send a message and return the answer; raises `TalariaError` with the reason if there is none."""
        if self._session is None:
            raise Refused("Open the agent first: `async with Agent(...) as agent:`, or use `run`.")
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        match await self._session.conversation.say(message, source=SOURCE, external_id=new_id()):
            case TurnAnswered(answer):
                return answer
            case TurnFailed(owner_text=reason) | TurnOutOfBudget(text=reason):
                raise TalariaError(reason)
            case _:
                raise TalariaError("The turn was stopped.")

    def run(self, text: str) -> str:
        """Ask one question from code without an event loop."""
        return asyncio.run(self._ask_once(text))

    async def _ask_once(self, text: str) -> str:
        async with self:
            return await self.ask(text)


class FunctionTool:
    """Implementation of `Tool` by a function, plain or async."""

    def __init__(self, function: Callable[..., Any], effect: Effect) -> None:
        self.name = function.__name__
        self.description = inspect.getdoc(function) or self.name.replace("_", " ")
        self.effect = effect
        self.arguments = _build_arguments(function)
        self._function = function

    def proposed_action(self, arguments: Any) -> ProposedAction:
        """Describe what these arguments would do."""
        shown = ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(arguments).items())
        return ProposedAction("other", f"{self.name}({shown})")

    async def run(self, arguments: Any, call: Call) -> ToolOutput:
        """Call the function; a plain one in a thread, so that it may block."""
        values = msgspec.structs.asdict(arguments)
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**values)
        else:
            result = await asyncio.to_thread(self._function, **values)
        return ToolOutput(result if isinstance(result, str) else msgspec.json.encode(result).decode())


def tool(function: Callable[..., Any], *, effect: Effect = Effect.IRREVERSIBLE) -> FunctionTool:
    """Return a tool that calls ``function``; set its effect if repeating it is harmless."""
    return FunctionTool(function, effect)


def _as_tool(as_tools: Tool | Callable[..., Any]) -> Tool:
    return as_tools if isinstance(as_tools, FunctionTool) or not callable(as_tools) else tool(as_tools)


def _build_arguments(function: Callable[..., Any]) -> type[Struct]:
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, str)
        fields.append((name, kind) if parameter.default is parameter.empty else (name, kind, parameter.default))
    return msgspec.defstruct(f"{function.__name__}_arguments", fields, kw_only=True, frozen=True)
