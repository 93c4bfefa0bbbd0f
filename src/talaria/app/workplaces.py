"""What lasts of a session while no agent is open: its folder, its variables, its processes and its MCP servers."""

import asyncio
from datetime import timedelta

from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.terminal.processes import Processes
from talaria.tools.workspace import LocalWorkspace

SERVERS_IDLE = timedelta(hours=24)
SERVERS_KEPT = 32


class Workplace:
    """Where one conversation works. `keep` lets it outlast the ones that use it now."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self.workspace = workspace
        self.processes = Processes()
        self.servers = SessionServers()
        self.users = 0
        self.kept = False

    def keep(self) -> None:
        """Stay when nobody works here any more, until somebody enters again or it is ended."""
        self.kept = True

    @property
    def is_worth_it(self) -> bool:
        """Whether there is something here that the store does not have."""
        return self.servers.is_running or bool(self.processes.running) or not self.workspace.is_untouched


class Workplaces:
    """The workplace of every conversation in this process; `close` ends all of them.

    MCP servers of a session that nobody has open end after ``servers_idle``; of more than ``servers_kept`` such
    sessions those left longest ago lose theirs first.
    """

    def __init__(self, *, servers_idle: timedelta = SERVERS_IDLE, servers_kept: int = SERVERS_KEPT) -> None:
        self._places: dict[SessionId, Workplace] = {}
        self._idle: dict[SessionId, asyncio.TimerHandle] = {}  # those with servers that nobody has open, oldest first
        self._servers_idle = servers_idle.total_seconds()
        self._servers_kept = servers_kept

    def enter(self, session_id: SessionId, workspace: LocalWorkspace, context: SessionContext) -> Workplace:
        """Return the workplace of a conversation: the one there is, else a new one on this workspace.

        Its commands are told of the ``context``: where the conversation is now. Whoever enters leaves in the end.
        """
        place = self._places.setdefault(session_id, Workplace(workspace))
        place.workspace.tell(context)
        place.users += 1
        place.kept = False
        self._forget_idle(session_id)
        return place

    def leave(self, session_id: SessionId) -> None:
        """Leave it; the last one ends it, unless it is kept and there is something to keep."""
        place = self._places.get(session_id)
        if place is None:
            return
        place.users -= 1
        if place.users > 0:
            return
        if not (place.kept and place.is_worth_it):
            self.end(session_id)
        elif place.servers.is_running:
            self._keep_servers(session_id)

    def find(self, session_id: SessionId) -> Workplace | None:
        """Return the workplace of a conversation, if there is one."""
        return self._places.get(session_id)

    def end(self, session_id: SessionId) -> bool:
        """Kill what was started there and forget it; ``False`` where there is nothing."""
        self._forget_idle(session_id)
        place = self._places.pop(session_id, None)
        if place is None:
            return False
        place.servers.close()
        place.processes.close()
        return True

    def close(self) -> None:
        """End all of them."""
        for session_id in list(self._places):
            self.end(session_id)

    def _keep_servers(self, session_id: SessionId) -> None:
        """Keep the servers of a session that nobody has open, for a while."""
        timer = asyncio.get_running_loop().call_later(self._servers_idle, self._end_servers, session_id)
        self._idle[session_id] = timer
        for oldest in list(self._idle)[: max(len(self._idle) - self._servers_kept, 0)]:
            self._end_servers(oldest)

    def _end_servers(self, session_id: SessionId) -> None:
        """End the servers of a session, and its workplace too if there is nothing else in it."""
        self._forget_idle(session_id)
        place = self._places.get(session_id)
        if place is None:
            return
        place.servers.close()
        if not place.is_worth_it:
            self.end(session_id)

    def _forget_idle(self, session_id: SessionId) -> None:
        timer = self._idle.pop(session_id, None)
        if timer is not None:
            timer.cancel()
