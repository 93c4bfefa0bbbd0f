"""Which paths a model may touch without asking."""

import os
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from talaria.agent.approval.shell_words import UNKNOWN

_CREDENTIALS_AT_HOME = (
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker/config.json", ".config/gh", ".config/gcloud", ".config/op",
    ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", ".password-store", ".local/share/keyrings",
    ".mozilla", ".config/google-chrome",
)  # fmt: skip
_CREDENTIALS_OF_THE_SYSTEM = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private")
_CREDENTIAL_NAMES = (".env", ".env.*", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", ".htpasswd")
_HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", ".env.dist")
_START_UP_AT_HOME = (
    ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zprofile", ".zshenv", ".config/autostart",
    ".config/systemd", ".config/fish/config.fish", ".gitconfig", ".ssh/authorized_keys", "Library/LaunchAgents",
)  # fmt: skip
_IN_CODE = r"\.ssh\b|\.aws\b|\.gnupg\b|\bid_(?:rsa|ed25519|ecdsa)\b|\.git-credentials|\.netrc|/etc/shadow|\.env\b"
_ALWAYS_WRITABLE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd", "/tmp", "/var/tmp")  # noqa: S108
_DEVICES = r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper|md|loop|mem|kmem)"
_VITAL = {
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv",
    "/sys", "/usr", "/var", "/Applications", "/Library", "/System", "/Users",
}  # fmt: skip
_GLOB = r"[*?\[]"


class Places(Struct, frozen=True):
    """The folder of a conversation, the person's home, and what is ours to protect, less what is ``readable`` in it."""

    folder: Path
    home: Path
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    def path(self, text: str, folder: Path | None = None) -> Path | None:
        """Return what a word of a command names from ``folder``; ``None`` where that is not known."""
        if UNKNOWN in text or "\0" in text:
            return None
        if text.startswith("~"):
            person, _, rest = text[1:].partition("/")
            text = str((self.home.parent / person if person else self.home) / rest)
        return Path(os.path.normpath((folder or self.folder) / text))

    def is_secret(self, path: Path) -> bool:
        """Return whether credentials are kept there; globs are read as what they could match."""
        if path.suffix == ".pub" or path.name in _HARMLESS_NAMES:
            return False
        if _is_telling(path.name) and any(_could_be(path.name, name) for name in _CREDENTIAL_NAMES):
            return True
        if any(path.is_relative_to(place) for place in self.readable):
            return False
        return _reaches_any(path, _places_of_credentials(self.home, self.protected))

    def is_start_up(self, path: Path) -> bool:
        """Return whether what is written there runs later by itself."""
        if "hooks" in path.parts and ".git" in path.parts:
            return True
        return _reaches_any(path, tuple(str(self.home / name) for name in _START_UP_AT_HOME))

    def is_outside(self, path: Path) -> bool:
        """Return whether a path is neither in the working folder nor a place for scratch."""
        inside = (self.folder, *map(Path, _ALWAYS_WRITABLE))
        real = Path(os.path.realpath(path))
        return not any(path.is_relative_to(place) and real.is_relative_to(os.path.realpath(place)) for place in inside)

    def is_vital(self, path: Path) -> bool:
        """Return whether the machine or the person's home is gone without it."""
        return str(path) in _VITAL or path in (self.home, self.home.parent)

    def is_shared(self, path: Path) -> bool:
        """Return whether others keep their scratch there too."""
        return str(path) in _ALWAYS_WRITABLE


def is_device(path: Path) -> bool:
    """Return whether writing there overwrites a disk or memory."""
    return bool(re.match(_DEVICES, str(path)))


def mentions_credentials(code: str) -> bool:
    """Return whether a program text names a place where credentials are kept."""
    return bool(re.search(_IN_CODE, code))


def _is_telling(name: str) -> bool:
    """Return whether a name says enough of what it stands for: ``*`` and ``*.json`` do not, ``.e*`` does."""
    literal = re.split(_GLOB, name)[0]
    return literal == name or len(literal) > 1 or literal == "."


def _could_be(pattern: str, name: str) -> bool:
    """Return whether a word of a path, perhaps a glob, stands for ``name``, perhaps one of ours."""
    if not re.search(_GLOB, pattern):
        return fnmatchcase(pattern, name)
    return pattern.startswith(".") == name.startswith(".") and "*" not in name and fnmatchcase(name, pattern)


@lru_cache(maxsize=64)
def _places_of_credentials(home: Path, protected: tuple[Path, ...]) -> tuple[str, ...]:
    at_home = (str(home / name) for name in _CREDENTIALS_AT_HOME)
    return (*at_home, *_CREDENTIALS_OF_THE_SYSTEM, *map(str, protected))


def _reaches_any(path: Path, places: tuple[str, ...]) -> bool:
    """Return whether ``path`` is one of the places or lies in it."""
    text = str(path)
    if not re.search(_GLOB, text):
        return f"{text}/".startswith(tuple(f"{place}/" for place in places))
    return any(_could_reach(path.parts, Path(place).parts) for place in places)


def _could_reach(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if len(parts) < len(wanted):
        return False
    return all(have == want or _could_be(have, want) for have, want in zip(parts, wanted, strict=False))
