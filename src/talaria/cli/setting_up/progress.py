"""Which sections of the set-up are done, kept in a small file of the profile."""

import msgspec
from msgspec import Struct

from talaria.settings.files import only_writer, read_file, write_file
from talaria.settings.profiles import Profile

SECTIONS = ("model", "chat", "tools")
_FILE = "setup.json"


class _Kept(Struct):
    finished: list[str] = []


class Progress:
    """What was gone through to its end, skipped questions included: the settings alone could not tell."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._file = profile.folder / _FILE

    def finished(self) -> tuple[str, ...]:
        """The sections that are done; none where the file cannot be understood."""
        try:
            kept = msgspec.json.decode(read_file(self._file) or b"{}", type=_Kept)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return tuple(section for section in SECTIONS if section in kept.finished)

    def left(self) -> tuple[str, ...]:
        """The sections that are not."""
        done = self.finished()
        return tuple(section for section in SECTIONS if section not in done)

    def finish(self, section: str) -> None:
        """Remember that a section is done."""
        with only_writer(self._profile.folder):
            done = {*self.finished(), section}
            kept = _Kept([name for name in SECTIONS if name in done])
            write_file(self._file, msgspec.json.encode(kept).decode() + "\n")
