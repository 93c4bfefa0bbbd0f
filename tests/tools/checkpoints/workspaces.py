"""A workspace with checkpoints, for the suite of both engines."""

import os
from datetime import timedelta
from pathlib import Path

from msgspec import structs

from talaria.settings.environment import process_environment
from talaria.settings.sections.tools import CheckpointSettings
from talaria.tools.checkpoints.history import Retention, WorkspaceHistory
from talaria.tools.checkpoints.profile_checkpoints import CheckpointOptions, ProfileCheckpoints
from talaria.tools.checkpoints.repository import SnapshotLimits


class Workspace:
    """A folder and its checkpoints; ``turn`` makes changes as a tool call of the agent does."""

    def __init__(self, base: Path, engine: str, **limits: float) -> None:
        self.folder = base / "work"
        self.folder.mkdir(exist_ok=True)
        self.home = base / "home"
        self.home.mkdir(exist_ok=True)
        exclude = CheckpointSettings().exclude
        self.options = CheckpointOptions(
            folder=base / "checkpoints",
            home=self.home,
            path=process_environment()["PATH"],
            limits=structs.replace(SnapshotLimits(seconds=60, exclude=exclude), **limits),
            retention=Retention(lock_seconds=60),
            engine=engine,  # type: ignore[arg-type]
        )
        self._turns = 0

    @property
    def checkpoints(self) -> ProfileCheckpoints:
        return ProfileCheckpoints(self.options)

    @property
    def history(self) -> WorkspaceHistory:
        return self.checkpoints.open(self.folder)

    def write(self, path: str, text: str | bytes) -> Path:
        """Write a file as a person does, with an editor."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def turn(self, label: str = "do it", **files: str | None) -> None:
        """Run a turn that writes these files and deletes the ones that are ``None``; ``__`` stands for a dot."""
        self._turns += 1
        history, turn_id = self.history, f"turn-{self._turns}"
        history.record_before(label, "session", turn_id)
        for name, text in files.items():
            path = name.replace("__", ".")
            if text is None:
                (self.folder / path).unlink()
            else:
                self.write(path, text)
        history.record_after(turn_id)

    def keep(self, *, checkpoints: int = 100, age: timedelta = timedelta(days=30)) -> None:
        """Change the retention of checkpoints."""
        self.options = structs.replace(
            self.options, retention=Retention(checkpoints=checkpoints, age=age, lock_seconds=60)
        )

    def tree(self) -> dict[str, str]:
        """Return all files with their content; of a link, its target."""
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                content = f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes().decode(errors="replace")
                found[str(path.relative_to(self.folder))] = content
        return found
