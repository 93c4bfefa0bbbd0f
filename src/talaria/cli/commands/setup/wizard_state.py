"""Progress and context of the setup; progress is stored in a file of the profile."""

import msgspec
from msgspec import Struct

from talaria.cli.commands.setup.questions import SetupQuestions, wrap_lines
from talaria.cli.output.terminal import Terminal
from talaria.cli.services import Services
from talaria.contracts.setup import Discovery, SetupProbes
from talaria.settings.atomic_files import lock_folder, read_file, write_file
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.profiles import Profile

SECTIONS = ("model", "chat", "tools")


_FILE = "setup.json"


class _StoredProgress(Struct):
    finished: list[str] = []


class WizardProgress:
    """Finished sections, including skipped questions, which the settings alone cannot show."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._file = profile.folder / _FILE

    def finished(self) -> tuple[str, ...]:
        """Finished sections; none if the file is unreadable."""
        try:
            stored = msgspec.json.decode(read_file(self._file) or b"{}", type=_StoredProgress)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return tuple(section for section in SECTIONS if section in stored.finished)

    def left(self) -> tuple[str, ...]:
        """Unfinished sections."""
        done = self.finished()
        return tuple(section for section in SECTIONS if section not in done)

    def finish(self, section: str) -> None:
        """Store that a section is finished."""
        with lock_folder(self._profile.folder):
            done = {*self.finished(), section}
            stored = _StoredProgress([name for name in SECTIONS if name in done])
            write_file(self._file, msgspec.json.encode(stored).decode() + "\n")


class SetupContext(Struct, frozen=True):
    """Context of one setup run; with ``checks`` off, nothing is tested before it is written."""

    services: Services
    questions: SetupQuestions
    writer: ConfigWriter
    probes: SetupProbes
    found: Discovery
    checks: bool = True
    network_urls: dict[str, str] = {}

    @property
    def terminal(self) -> Terminal:
        """Terminal to print to."""
        return self.services.terminal

    def say(self, text: str, *styles: str) -> None:
        """Print a line, followed by the pending notes about saved settings."""
        self.terminal.line(self.terminal.styled(wrap_lines(text, self.terminal), *styles))
        for note in self.writer.notes:
            self.terminal.line(self.terminal.styled(wrap_lines(note, self.terminal), "yellow"))
        self.writer.notes.clear()
