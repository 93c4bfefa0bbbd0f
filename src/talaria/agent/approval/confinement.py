"""What others than the owner of the agent may have done, whatever else the rules say."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from talaria.contracts.tool import Deed, Workspace


class Confinement(Struct, frozen=True):
    """Tools of these names, which read and write in these folders and nowhere else.

    What a command or a program does once it runs is not held by this: that is why guests get neither by default.
    """

    places: tuple[Path, ...]
    tools: Callable[[str], bool]

    def refusal(self, tool: str, deed: Deed, workspace: Workspace) -> str:
        """Return why a call must not run; empty where it may."""
        if not self.tools(tool):
            return f"Only the owner of this agent may use {tool}. Nobody can allow that here."
        if deed.kind in {"read", "write"} and not self._is_inside(deed.target, workspace):
            return "It is outside of what belongs to this conversation. Nobody can allow that here."
        return ""

    def _is_inside(self, target: str, workspace: Workspace) -> bool:
        try:
            real = Path(os.path.realpath(workspace.resolve(target)))
        except (ValueError, RuntimeError):  # it is no path, or that of somebody whom the system does not know
            return False
        return any(real.is_relative_to(os.path.realpath(place)) for place in self.places)
