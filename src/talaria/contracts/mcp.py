"""MCP servers for commands and front ends: their state, their tools and their prompts."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.messages import Part

ServerCondition = Literal["connected", "disconnected", "off"]
Transport = Literal["stdio", "http"]


class ServerTool(Struct, frozen=True):
    """A tool of a server; ``name`` is what the model calls it."""

    name: str
    description: str


class PromptArgument(Struct, frozen=True):
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


class ServerPrompt(Struct, frozen=True):
    """A prompt that a server offers."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class ServerState(Struct, frozen=True, kw_only=True):
    """A server in a session, or tried by itself; ``problem`` says why it isn't connected."""

    name: str
    condition: ServerCondition
    problem: str = ""
    tools: tuple[ServerTool, ...] = ()
    resources: int = 0
    prompts: tuple[ServerPrompt, ...] = ()


class ServerEntry(Struct, frozen=True, kw_only=True):
    """A configured server; ``target`` is its command line or its address, ``account`` who is signed in to it."""

    name: str
    enabled: bool
    transport: Transport
    target: str
    signed_in: bool = False
    account: str = ""
    problem: str = ""


class SessionServersView(Protocol):
    """The servers of one open session."""

    def states(self) -> Sequence[ServerState]:
        """Return the state of each configured server, by name."""

    def prompts(self) -> Sequence[ServerPrompt]:
        """Return the prompts of all connected servers."""

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Part]:
        """Return a prompt, filled in; raises `ToolFailed` with the reason if that fails."""

    async def reload(self, names: Sequence[str] = ()) -> None:
        """Read the settings again and reconnect the named servers, all if empty; raises `NotFound` for a name."""
