"""What lasts of a conversation while it is not open: its folder, its variables, the processes that it started."""

from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.tools.terminal.processes import Processes
from talaria.tools.workspace import LocalWorkspace


class Workplace:
    """Where one conversation works. `keep` lets it outlast the ones that use it now."""

    def __init__(self, workspace: LocalWorkspace) -> None:
        self.workspace = workspace
        self.processes = Processes()
        self.users = 0
        self.kept = False

    def keep(self) -> None:
        """Stay when nobody works here any more, until somebody enters again or it is ended."""
        self.kept = True

    @property
    def is_worth_it(self) -> bool:
        """Whether there is something here that the store does not have."""
        return bool(self.processes.running) or not self.workspace.is_untouched


class Workplaces:
    """The workplace of every conversation in this process; `close` ends all of them."""

    def __init__(self) -> None:
        self._places: dict[SessionId, Workplace] = {}

    def enter(self, session_id: SessionId, workspace: LocalWorkspace, context: SessionContext) -> Workplace:
        """Return the workplace of a conversation: the one there is, else a new one on this workspace.

        Its commands are told of the ``context``: where the conversation is now. Whoever enters leaves in the end.
        """
        place = self._places.setdefault(session_id, Workplace(workspace))
        place.workspace.tell(context)
        place.users += 1
        place.kept = False
        return place

    def leave(self, session_id: SessionId) -> None:
        """Leave it; the last one ends it, unless it is kept and there is something to keep."""
        place = self._places.get(session_id)
        if place is None:
            return
        place.users -= 1
        if place.users <= 0 and not (place.kept and place.is_worth_it):
            self.end(session_id)

    def find(self, session_id: SessionId) -> Workplace | None:
        """Return the workplace of a conversation, if there is one."""
        return self._places.get(session_id)

    def end(self, session_id: SessionId) -> bool:
        """Kill what was started there and forget it; ``False`` where there is nothing."""
        place = self._places.pop(session_id, None)
        if place is None:
            return False
        place.processes.close()
        return True

    def close(self) -> None:
        """End all of them."""
        for session_id in list(self._places):
            self.end(session_id)
