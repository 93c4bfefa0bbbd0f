"""What all sections of one guided set-up share."""

from msgspec import Struct

from talaria.cli.services import Services
from talaria.cli.setting_up.desk import Discovered, SetupDesk
from talaria.cli.setting_up.questions import Questions, wrapped
from talaria.cli.setting_up.writing import Writer
from talaria.cli.terminal import Terminal


class Guided(Struct, frozen=True):
    """One run of the set-up; with ``checks`` off, nothing is tried before it is written."""

    services: Services
    questions: Questions
    writer: Writer
    desk: SetupDesk
    found: Discovered
    checks: bool = True
    network_urls: dict[str, str] = {}

    @property
    def terminal(self) -> Terminal:
        """Where to print."""
        return self.services.terminal

    def say(self, text: str, *styles: str) -> None:
        """Print a line, and behind it what there is to note about what was written."""
        self.terminal.line(self.terminal.styled(wrapped(text, self.terminal), *styles))
        for note in self.writer.notes:
            self.terminal.line(self.terminal.styled(wrapped(note, self.terminal), "yellow"))
        self.writer.notes.clear()
