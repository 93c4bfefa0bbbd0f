"""Tool calls for tests, with a workspace and a person."""

from collections.abc import Mapping
from pathlib import Path

from talaria.contracts.tool import Call
from talaria.core.ids import SessionId


class FolderWorkspace:
    """Implements `Workspace`: one folder, for the life of a test."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.sandbox_folder = ""
        self.environment: Mapping[str, str] = environment or {}

    def resolve(self, path: str) -> Path:
        return (self.folder / Path(path).expanduser()).resolve()

    def move_to(self, folder: Path) -> None:
        self.folder = folder

    def move_inside(self, folder: str) -> None:
        self.sandbox_folder = folder

    def set_environment(self, values: Mapping[str, str]) -> None:
        self.environment = values


class ScriptedPerson:
    """Implements `Person`: returns the given answers in order and records the questions."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.questions: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        self.questions.append((question, choices))
        return self._answers.pop(0) if self._answers else None


def call_from(
    folder: Path,
    *,
    owner: str = "",
    audience: str = "",
    session_id: str = "session-1",
    person: ScriptedPerson | None = None,
    environment: Mapping[str, str] | None = None,
    progress: list[str] | None = None,
) -> Call:
    """Return a call from a session whose workspace is this folder."""
    return Call(
        id="call-1",
        session_id=SessionId(session_id),
        workspace=FolderWorkspace(folder, environment),
        person=person or ScriptedPerson(),
        progress=(progress if progress is not None else []).append,
        owner=owner,
        audience=audience,
    )
