"""Current settings of a running process, with a generation number."""

from talaria.settings.model import Settings


class LiveSettings:
    """Current settings, replaced as a whole; equal generations mean identical settings."""

    def __init__(self, current: Settings) -> None:
        self._current = current
        self._generation = 0

    @property
    def current(self) -> Settings:
        """Settings for new work."""
        return self._current

    @property
    def generation(self) -> int:
        """Number of replacements since the process started."""
        return self._generation

    def replace(self, settings: Settings) -> None:
        """Replace the settings."""
        self._current = settings
        self._generation += 1
