"""What can be wrong with a profile, as far as a caller reacts to it."""

from collections.abc import Iterable
from pathlib import Path

from talaria.core.errors import TalariaError
from talaria.settings.faults import Fault


class SettingsInvalid(TalariaError):
    """The settings have faults; ``str(error)`` lists all of them, one a line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class ProfileUnusable(TalariaError):
    """A file or folder of a profile cannot be read or written; ``trouble`` says what failed and why."""

    def __init__(self, path: Path, failed: str, error: OSError) -> None:
        self.path = path
        self.trouble = f"{failed}: {error.strerror or type(error).__name__}"
        super().__init__(f"{path} {self.trouble}.")
