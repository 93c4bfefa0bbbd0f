"""Current settings of a running process, with a generation number."""

from talaria.settings.model import Settings


class LiveSettings:
    """Current settings, replaced as a whole by `replace`.

    ``generation`` counts the replacements since the process started; equal generations mean identical settings.
    """

    def __init__(self, current: Settings) -> None:
        self.current = current
        self.generation = 0

    def replace(self, settings: Settings) -> None:
        """Replace the settings."""
        self.current = settings
        self.generation += 1
