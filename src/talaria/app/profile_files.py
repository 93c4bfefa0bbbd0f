"""Files of a profile outside of the store: checkpoints, memory, and the outputs and media of sessions."""

from collections.abc import Mapping
from shutil import rmtree

from msgspec import Struct

from talaria.app.session.change_recorder import open_checkpoints
from talaria.app.session.memory import open_memories
from talaria.commands.application import AgentMemory
from talaria.contracts.checkpoints import Checkpoints
from talaria.core.ids import SessionId
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.browser.session_folder import end_browser
from talaria.tools.output import FullOutputs


class ProfileFiles(Struct, frozen=True):
    """Implementation of `FileService`."""

    settings: Settings
    profile: Profile
    environment: Mapping[str, str]

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of all workspaces."""
        return open_checkpoints(self.settings, self.profile, self.environment)

    @property
    def memory(self) -> AgentMemory:
        """The agent's memory of all people."""
        from talaria.app.profile_admin import ProfileMemory  # noqa: PLC0415 (loaded when memory is shown)

        return ProfileMemory(open_memories(self.settings, self.profile))

    def delete_outputs(self, session_id: SessionId) -> None:
        """Delete the output and media files of a deleted session, and its browser."""
        end_browser(self.profile.browsers_folder, session_id)
        FullOutputs(self.profile.outputs_folder).forget(session_id)
        rmtree(self.profile.media_folder / session_id, ignore_errors=True)
