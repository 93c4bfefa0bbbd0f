"""Settings of an MCP server."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, structs


class TokenSource(Protocol):
    """The tokens of a sign-in to a server."""

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request; raises `SignInNeeded` if a person has to sign in."""

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Replace the token of headers that the server has rejected."""


class McpServer(Struct, frozen=True, kw_only=True):
    """One server: a ``command`` to run, or a ``url`` to connect to (streamable HTTP).

    ``legacy`` uses the protocol from before 2026 without asking first; otherwise the server is asked. ``include`` names
    the tools to offer, all if empty; ``exclude`` removes some. Pauses between reconnects grow from
    ``first_pause_seconds`` to ``longest_pause_seconds``. A command gets ``env`` in its environment, which overrides
    ``session_env``, the variables of its session. ``roots`` are the folders that a server may ask for, ``authorizer``
    the tokens of a sign-in.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    session_env: dict[str, str] = {}
    folder: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    legacy: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    connect_seconds: float = 30
    call_seconds: float = 120
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 60
    roots: tuple[str, ...] = ()
    authorizer: TokenSource | None = None

    def offers_tool(self, tool: str) -> bool:
        """Return whether a tool of the server is enabled."""
        return (not self.include or tool in self.include) and tool not in self.exclude

    def is_same(self, other: "McpServer") -> bool:
        """Return whether a connection can stay: the session's variables and folder may change when it moves."""
        moved = structs.replace(other, session_env=self.session_env, roots=self.roots, authorizer=self.authorizer)
        return moved == self
