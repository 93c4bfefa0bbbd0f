"""Workspaces of sessions: folder, variables, processes and MCP servers, which outlive the agent."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.terminal.processes import Processes
from talaria.tools.workspace import LocalWorkspace

if TYPE_CHECKING:  # loaded for sessions with MCP servers
    from talaria.tools.mcp.session_servers import SessionServers


def make_served_folder(settings: Settings, profile: Profile) -> Path:
    """Return the working folder for chats and the API, created if missing.

    It is outside the profile's own folder, which the agent may not touch without approval.
    """
    own = profile.folder.parent.parent / "workspaces" / profile.name
    folder = Path(settings.gateway.folder).expanduser() if settings.gateway.folder else own
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SERVERS_IDLE = timedelta(hours=24)


SERVERS_KEPT = 32


class OpenWorkspace:
    """Workspace of one session; `keep` lets it outlive its current users."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self.workspace = workspace
        self.processes = Processes()
        self.users = 0
        self.kept = False
        self._servers: SessionServers | None = None

    def keep(self) -> None:
        """Keep the workspace when its last user leaves, until it is entered again or ended."""
        self.kept = True

    @property
    def servers(self) -> "SessionServers":
        """The MCP servers of the session."""
        if self._servers is None:
            from talaria.tools.mcp.session_servers import SessionServers  # noqa: PLC0415 (loaded for MCP servers)

            self._servers = SessionServers()
        return self._servers

    @property
    def has_running_servers(self) -> bool:
        """Return whether MCP servers of the session are running."""
        return self._servers is not None and self._servers.is_running

    def close_servers(self) -> None:
        """End the MCP servers of the session."""
        if self._servers is not None:
            self._servers.close()

    @property
    def has_state(self) -> bool:
        """Return whether there is state here that is not in the store."""
        return self.has_running_servers or bool(self.processes.running) or not self.workspace.is_untouched


class WorkspaceRegistry:
    """Open workspaces of all sessions in this process; `close` ends all of them.

    MCP servers of a session that is not open end after ``servers_idle``. If more than ``servers_kept`` such sessions
    have servers, those left longest ago lose theirs first.
    """

    def __init__(self, *, servers_idle: timedelta = SERVERS_IDLE, servers_kept: int = SERVERS_KEPT) -> None:
        self._entries: dict[SessionId, OpenWorkspace] = {}
        self._idle_timers: dict[
            SessionId, asyncio.TimerHandle
        ] = {}  # sessions with servers that are not open, oldest first
        self._servers_idle = servers_idle.total_seconds()
        self._servers_kept = servers_kept

    def enter(self, session_id: SessionId, workspace: LocalWorkspace, context: SessionContext) -> OpenWorkspace:
        """Return the open workspace of a session, or a new one with this ``workspace``.

        Its commands get the ``context``, which describes the current chat, in their environment. Each call needs a
        `leave`.
        """
        entry = self._entries.get(session_id)
        if entry is None:
            entry = self._entries[session_id] = OpenWorkspace(workspace)
        entry.workspace.tell(context)
        entry.users += 1
        entry.kept = False
        self._cancel_timer(session_id)
        return entry

    def leave(self, session_id: SessionId) -> None:
        """Leave a workspace; the last user ends it, unless it is kept and has state."""
        entry = self._entries.get(session_id)
        if entry is None:
            return
        entry.users -= 1
        if entry.users > 0:
            return
        if not (entry.kept and entry.has_state):
            self.end(session_id)
        elif entry.has_running_servers:
            self._retain_servers(session_id)

    def find(self, session_id: SessionId) -> OpenWorkspace | None:
        """Return the open workspace of a session, if there is one."""
        return self._entries.get(session_id)

    def end(self, session_id: SessionId) -> bool:
        """Kill the processes and servers of a workspace and remove it; ``False`` if there is none."""
        self._cancel_timer(session_id)
        entry = self._entries.pop(session_id, None)
        if entry is None:
            return False
        entry.close_servers()
        entry.processes.close()
        return True

    def close(self) -> None:
        """End all workspaces."""
        for session_id in list(self._entries):
            self.end(session_id)

    def _retain_servers(self, session_id: SessionId) -> None:
        """Keep the servers of a session that is not open, for ``servers_idle`` at most."""
        timer = asyncio.get_running_loop().call_later(self._servers_idle, self._end_servers, session_id)
        self._idle_timers[session_id] = timer
        for oldest in list(self._idle_timers)[: max(len(self._idle_timers) - self._servers_kept, 0)]:
            self._end_servers(oldest)

    def _end_servers(self, session_id: SessionId) -> None:
        """End the servers of a session, and its workspace too if it has no other state."""
        self._cancel_timer(session_id)
        entry = self._entries.get(session_id)
        if entry is None:
            return
        entry.close_servers()
        if not entry.has_state:
            self.end(session_id)

    def _cancel_timer(self, session_id: SessionId) -> None:
        timer = self._idle_timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()
