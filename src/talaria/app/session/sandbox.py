"""Choice of the sandbox for programs of the agent, and of the paths they can access."""

import sys
from collections.abc import Iterable
from pathlib import Path

from talaria.cli.chat.options import SOURCE as TERMINAL
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.sandbox.bubblewrap import Sandbox, sandbox_available

_PACKAGE = Path(__file__).parents[2]


def sandbox_for(
    settings: Settings, profile: Profile, *, surface: str, writable: Iterable[Path], readable: Iterable[Path] = ()
) -> Sandbox | None:
    """Return the sandbox for programs of ``surface``; ``None`` if they run with the user's access.

    With ``auto`` there is a sandbox wherever one works, except in the terminal, where the user approves what runs; the
    terminal never probes for it. With ``true`` there is a sandbox everywhere, which refuses to run programs if none
    works.
    """
    enabled = settings.sandbox.enabled
    if enabled is False or (enabled == "auto" and surface == TERMINAL):
        return None
    problem = sandbox_available() or ""
    if problem and enabled == "auto":
        return None
    return Sandbox(
        writable=tuple(writable),
        readable=(Path(sys.prefix), _PACKAGE, *readable),
        hidden=(profile.folder, profile.guests_folder),
        network=settings.sandbox.network,
        problem=problem,
    )
