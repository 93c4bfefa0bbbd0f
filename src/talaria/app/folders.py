"""Where the agent works for those who are not at a terminal."""

from pathlib import Path

from talaria.settings.model import Settings
from talaria.settings.profiles import Profile


def served_folder(settings: Settings, profile: Profile) -> Path:
    """Return the folder for chats and for the API, which is there then.

    It is not in the profile's own folder: what is there the agent may not touch without asking.
    """
    own = profile.folder.parent.parent / "workspaces" / profile.name
    folder = Path(settings.gateway.folder).expanduser() if settings.gateway.folder else own
    folder.mkdir(parents=True, exist_ok=True)
    return folder
