"""Tools made from plain functions: the signature gives the arguments, the docstring the description."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput


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


def function_tool(function: Callable[..., Any], *, effect: Effect = Effect.IRREVERSIBLE) -> FunctionTool:
    """Return a tool that calls ``function``; set its effect if repeating it is harmless."""
    return FunctionTool(function, effect)


def _build_arguments(function: Callable[..., Any]) -> type[Struct]:
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, str)
        fields.append((name, kind) if parameter.default is parameter.empty else (name, kind, parameter.default))
    return msgspec.defstruct(f"{function.__name__}_arguments", fields, kw_only=True, frozen=True)
