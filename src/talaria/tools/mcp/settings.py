"""Settings of an MCP server."""

from msgspec import Struct


class McpServer(Struct, frozen=True, kw_only=True):
    """One server: a ``command`` to run, or a ``url`` to connect to (streamable HTTP).

    ``legacy`` uses the protocol from before 2026 without asking first; otherwise the server is asked. ``include`` names
    the tools to offer, all if empty; ``exclude`` removes some. Pauses between reconnects grow from
    ``first_pause_seconds`` to ``longest_pause_seconds``. A command gets ``env`` in its environment, which overrides
    ``session_env``, the variables of its session.
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

    def offers(self, tool: str) -> bool:
        """Return whether a tool of the server is enabled."""
        return (not self.include or tool in self.include) and tool not in self.exclude
