"""What has to be known of a server to use it."""

from msgspec import Struct


class McpServer(Struct, frozen=True, kw_only=True):
    """One server: a ``command`` to run and speak to, or a ``url`` to ask (streamable HTTP).

    ``legacy`` speaks the protocol as it was before 2026 without asking first; else the server is asked.
    ``include`` names the tools to offer, all if it is empty; ``exclude`` takes some away again. Pauses between
    attempts to connect again grow from ``first_pause_seconds`` to ``longest_pause_seconds``. A command finds ``env`` in
    its environment, and below that ``session_env``, which tells it of the session that it serves.
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
        """Return whether a tool of the server is wanted."""
        return (not self.include or tool in self.include) and tool not in self.exclude
