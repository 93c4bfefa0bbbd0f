"""The tools of one agent: how a model is told of them, and how its calls find them again."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct

from talaria.agent.schema import describe
from talaria.contracts.tool import Tool
from talaria.core.errors import ToolFailed
from talaria.core.messages import ToolCall

_FENCE = r"(?s)\A```\w*\n(.*?)\n?```\Z"
_STRING_OR_LAST_COMMA = r"""("(?:[^"\\]|\\.)*+"?)|,(?=\s*[}\]])"""


class Order(Struct, frozen=True):
    """A call that was understood: a tool and arguments that fit it."""

    call: ToolCall
    tool: Tool
    arguments: Any


class Toolbox:
    """Fixed for the life of an agent, so that the prefix of its requests is."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.specs = tuple(describe(tool) for tool in self._tools.values())

    def understand(self, call: ToolCall) -> Order:
        """Return what a model means, mended where that is safe, or raise `ToolFailed` with what is wrong."""
        tool = self._find(call.name)
        return Order(call, tool, _arguments(tool, call.arguments))

    def _find(self, name: str) -> Tool:
        if name in self._tools:
            return self._tools[name]
        meant = [known for known in self._tools if _plain(known) == _plain(name)]
        if len(meant) == 1:
            return self._tools[meant[0]]
        near = get_close_matches(name, self._tools, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" There are: {', '.join(self._tools)}."
        raise ToolFailed(f"There is no tool {name}.{hint}")


def _arguments(tool: Tool, text: str) -> Any:
    try:
        values = msgspec.json.decode(_mended(text))
        if isinstance(values, str) and values.lstrip().startswith("{"):
            values = msgspec.json.decode(_mended(values))
    except msgspec.DecodeError as error:
        raise ToolFailed(f"The arguments of {tool.name} are not JSON: {error}. Send one JSON object.") from error
    try:
        return msgspec.convert(values, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFailed(f"The arguments of {tool.name} do not fit: {error}. {_expected(tool)}") from error


def _mended(text: str) -> str:
    """Return what a model surely meant: nothing for no arguments, no fence around, no comma behind the last value."""
    text = text.strip() or "{}"
    fenced = re.match(_FENCE, text)
    text = fenced[1] if fenced else text
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return re.sub(_STRING_OR_LAST_COMMA, lambda found: found[1] or "", text)
    return text


def _expected(tool: Tool) -> str:
    return f"Expected: {bytes(describe(tool).parameters).decode()}"


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").casefold()
