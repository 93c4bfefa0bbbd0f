"""Talaria as a library: an agent in five lines."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from talaria.agent.functions import FunctionTool, function_tool
from talaria.app.house import open_house
from talaria.contracts.tool import Effect, Tool
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import TurnAnswered, TurnEvent, TurnFailed, TurnOutOfBudget
from talaria.core.ids import new_id
from talaria.core.messages import Message, Text
from talaria.sessions.chat import Chat, ChatWish
from talaria.settings.environment import process_environment
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles, find_home
from talaria.settings.secrets import read_secrets

__all__ = ["Agent", "Effect", "tool"]

SOURCE = "python"
tool = function_tool


class Agent:
    """One conversation with a model, in code of your own.

    Used as an ``async with`` block it keeps the conversation between questions; `run` is for a single one. What
    is said goes to the store of the profile, like everything else that is said to Talaria. ``tools`` are plain
    functions, results of `tool`, or objects that implement `Tool`; ``None`` gives the usual ones.
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
        given = None if tools is None else tuple(map(_as_tool, tools))
        self._wish = ChatWish(
            source=SOURCE,
            folder=Path.cwd(),
            model=model,
            identity=instructions,
            tools=given,
            titled=False,
            attended=False,
        )
        self._profile = profile
        self._on_event = on_event
        self._stack = AsyncExitStack()
        self._chat: Chat | None = None

    async def __aenter__(self) -> Self:
        environment = process_environment()
        profiles = Profiles(find_home(environment))
        profile = profiles.get(self._profile) if self._profile else profiles.active()
        settings, secrets = load_settings(profile, environment), read_secrets(profile, environment)
        jobs = await self._stack.enter_async_context(asyncio.TaskGroup())
        try:
            house = open_house(settings, profile, secrets, environment, self._stack)
            self._chat = await house.open_chat(self._wish, self._on_event, self._stack, jobs)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._chat = None
        await self._stack.aclose()

    async def ask(self, text: str) -> str:
        """Say something and return the answer; raises `TalariaError` with the reason when there is none."""
        if self._chat is None:
            raise Refused("Open the agent first: `async with Agent(...) as agent:`, or use `run`.")
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        match await self._chat.conversation.say(message, source=SOURCE, external_id=new_id()):
            case TurnAnswered(answer):
                return answer
            case TurnFailed(owner_text=reason) | TurnOutOfBudget(text=reason):
                raise TalariaError(reason)
            case _:
                raise TalariaError("The turn was stopped.")

    def run(self, text: str) -> str:
        """Ask one question from code without an event loop."""
        return asyncio.run(self._once(text))

    async def _once(self, text: str) -> str:
        async with self:
            return await self.ask(text)


def _as_tool(given: Tool | Callable[..., Any]) -> Tool:
    return given if isinstance(given, FunctionTool) or not callable(given) else function_tool(given)
