"""What a server offers, as tools of ours."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, Tool, ToolOutput
from talaria.tools.mcp.schema import struct_of, values_of

_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1_000
_LONGEST_LIST = 400


class Offer(Struct, frozen=True):
    """A tool as the server describes it."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: Effect


class Offers(Struct, frozen=True):
    """All that a server has; resources by address, prompts by name with their arguments."""

    tools: tuple[Offer, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


class Remote(Protocol):
    """A server, connected or not; every call raises `ToolFailed` if it is not."""

    name: str

    async def call_tool(self, name: str, arguments: dict[str, Any], show: Callable[[str], None]) -> ToolOutput:
        """Have the server run a tool; ``show`` gets what it says meanwhile."""

    async def read_resource(self, uri: str) -> ToolOutput:
        """Return what is at an address of the server's."""

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> ToolOutput:
        """Return a prompt of the server's, filled in."""


def tools_of(remote: Remote, offers: Offers) -> list[Tool]:
    """Return everything that a server offers as tools."""
    tools: list[Tool] = [RemoteTool(remote, offer) for offer in offers.tools]
    if offers.resources:
        tools.append(ReadResource(remote, offers.resources))
    if offers.prompts:
        tools.append(GetPrompt(remote, offers.prompts))
    return tools


class RemoteTool:
    """One tool of a server."""

    def __init__(self, remote: Remote, offer: Offer) -> None:
        self.name = _full_name(remote.name, offer.name)
        self.description = _cut(offer.description or offer.name, _LONGEST_DESCRIPTION)
        self.effect = offer.effect
        self.arguments = struct_of(self.name, offer.schema)
        self._remote = remote
        self._tool = offer.name

    def deed(self, arguments: Struct) -> Deed:
        """Say what the server is told."""
        return Deed("other", f"{self._remote.name}: {self._tool} {msgspec.json.encode(arguments).decode()}")

    async def run(self, arguments: Struct, call: Call) -> ToolOutput:
        """Have the server run it."""
        return await self._remote.call_tool(self._tool, values_of(arguments), call.progress)


class ReadResourceArguments(Struct, frozen=True):
    """Which resource."""

    uri: str


class ReadResource:
    """The resources of a server."""

    effect = Effect.READS
    arguments: type[Struct] = ReadResourceArguments

    def __init__(self, remote: Remote, resources: Sequence[str]) -> None:
        self.name = _full_name(remote.name, "read_resource")
        self.description = f"Read a resource of {remote.name}: {_cut(', '.join(resources), _LONGEST_LIST)}"
        self._remote = remote

    def deed(self, arguments: ReadResourceArguments) -> Deed:
        """Say what is read."""
        return Deed("other", f"{self._remote.name}: read {arguments.uri}")

    async def run(self, arguments: ReadResourceArguments, call: Call) -> ToolOutput:
        """Return the resource."""
        return await self._remote.read_resource(arguments.uri)


class GetPromptArguments(Struct, frozen=True):
    """Which prompt, and what to put into it."""

    name: str
    arguments: Annotated[dict[str, str], Meta(description="By name")] = {}


class GetPrompt:
    """The prompts of a server."""

    effect = Effect.READS
    arguments: type[Struct] = GetPromptArguments

    def __init__(self, remote: Remote, prompts: Sequence[str]) -> None:
        self.name = _full_name(remote.name, "get_prompt")
        self.description = f"Get a prompt of {remote.name}: {_cut(', '.join(prompts), _LONGEST_LIST)}"
        self._remote = remote

    def deed(self, arguments: GetPromptArguments) -> Deed:
        """Say which prompt is asked for."""
        return Deed("other", f"{self._remote.name}: prompt {arguments.name}")

    async def run(self, arguments: GetPromptArguments, call: Call) -> ToolOutput:
        """Return the prompt, filled in."""
        return await self._remote.get_prompt(arguments.name, arguments.arguments)


def _full_name(server: str, tool: str) -> str:
    """Return a name that every provider takes; one that is cut stays different from all others."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp_{server}_{tool}")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
