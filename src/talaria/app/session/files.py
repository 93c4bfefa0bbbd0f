"""Files of sessions outside of the store: workspace, long outputs of tools, and media."""

import re
import shutil

from talaria.app.application import TalariaApplication
from talaria.core.ids import SessionId, is_id
from talaria.tools.output import FullOutputs, readable

_OUTPUT_NAME = re.compile(r"[\w-]+\.txt")
_LONGEST_OUTPUT = 2_000_000


class StoredSessionFiles:
    """Files of the sessions of one profile; implements `SessionFiles` of the web app."""

    def __init__(self, app: TalariaApplication) -> None:
        self._app = app
        self._outputs = FullOutputs(app.profile.outputs_folder)

    def delete(self, session_id: SessionId) -> None:
        """Delete the workspace and the files of a deleted session."""
        self._app.end_workspace(session_id)
        self._outputs.forget(session_id)
        if is_id(session_id):
            shutil.rmtree(self._app.profile.media_folder / session_id, ignore_errors=True)

    def read_output(self, session_id: SessionId, file_name: str) -> str | None:
        """Return the stored output of a tool, without secrets; ``None`` if there is none with this name."""
        file = self._outputs.place(session_id) / file_name
        if not _OUTPUT_NAME.fullmatch(file_name) or not file.is_file():
            return None
        with file.open("rb") as stored:
            return self._app.mask(readable(stored.read(_LONGEST_OUTPUT)))
