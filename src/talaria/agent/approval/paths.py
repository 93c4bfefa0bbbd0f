"""Path rules: which paths a model may touch without approval."""

import glob
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from talaria.agent.approval.grants import Danger

UNKNOWN = "\x1b"  # stands for any unknown text in a path
_CREDENTIALS_AT_HOME = (
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker/config.json", ".config/gh", ".config/hub", ".config/gcloud",
    ".config/op", ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".password-store",
    ".local/share/keyrings", ".local/share/kwalletd", ".mozilla", ".thunderbird", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".config/github-copilot", ".gemini",
    ".local/share/opencode/auth.json", ".terraform.d/credentials.tfrc.json", ".vault-token", ".m2/settings.xml",
    ".m2/settings-security.xml", ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config", ".oci", ".databrickscfg", ".boto", ".s3cfg", ".config/rclone", ".config/doctl",
    ".fly", ".huggingface/token", ".cache/huggingface/token", ".config/sops", ".config/age",
    ".config/containers/auth.json",
    ".config/Bitwarden CLI", ".config/Signal", ".electrum", ".bitcoin", ".ethereum", ".config/heroku", ".config/ngrok",
    ".config/stripe", ".ngrok2", ".expo", ".wakatime.cfg", "Library/Keychains",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
)  # fmt: skip
_CREDENTIALS_OF_THE_SYSTEM = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/kubernetes", "/etc/rancher", "/run/secrets", "/var/run/secrets", "/var/lib/docker", "/proc/kcore",
)  # fmt: skip
_PROCESS_SECRETS = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:environ|mem|auxv|fd)(?:/|$)|/etc/ssh/ssh_host_\w+_key$")
_CREDENTIAL_NAMES = (".env", ".env.*", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", ".htpasswd")
_HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", ".env.dist")
_START_UP_AT_HOME = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zprofile",
    ".zshenv", ".zlogin", ".xprofile", ".xinitrc", ".vimrc", ".config/nvim", ".config/autostart", ".config/systemd",
    ".config/fish", ".config/git", ".gitconfig", ".ssh/authorized_keys", ".ssh/rc", "Library/LaunchAgents",
)  # fmt: skip
_START_UP_NAMES = frozenset({".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile", ".gitconfig"})
_INSTRUCTIONS = frozenset({"AGENTS.md", "CLAUDE.md", ".cursorrules"})
_CREDENTIALS_IN_CODE = re.compile(
    r"\.ssh\b|\.aws\b|\.gnupg\b|\bid_(?:rsa|ed25519|ecdsa)\b|\.git-credentials|\.netrc|/etc/shadow|\.env\b(?!\.(?:example|"
    r"sample|template|dist))|\.cargo/credentials|\.credentials\.json|/environ\b|\.pgpass|\.npmrc|\.pypirc|\.vault-token|"
    r"\.kube/config|\.docker/config\.json|\.talaria/profiles\b"
)
_ALWAYS_WRITABLE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd")
_SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- named, not used
_DEVICES = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper|md|dm-|loop|mem|kmem|port)|/proc/(?:sysrq-trigger|kcore)"
)
_VITAL = {
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv",
    "/sys", "/usr", "/var", "/Applications", "/Library", "/System", "/Users",
}  # fmt: skip
_GLOB = re.compile(r"[*?\[]")
_ROOT_OF_PROCESS = re.compile(r"^/+proc/[^/]+(?:/task/[^/]+)?/root(?=/|$)")
_FOLDER_OF_PROCESS = re.compile(r"^/+proc/[^/]+(?:/task/[^/]+)?/cwd(?=/|$)")
_MAX_MATCHES = 64
_MAX_WILDCARDS = 2


class PathRules(Struct, frozen=True):
    """The session's folder, the user's home, and protected folders, minus the ``readable`` part of them.

    ``scratch`` are the entries of the temporary folders that this session has created.
    """

    folder: Path
    home: Path
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    scratch: set[str] = field(default_factory=set)

    def resolve_paths(self, text: str, folder: Path | None = None) -> tuple[Path, ...] | None:
        """Return the paths that a text names from ``folder``: as written and resolved; ``None`` if unknown."""
        if UNKNOWN in text or "\0" in text:
            return None
        if text.startswith("~"):
            person, _, rest = text[1:].partition("/")
            text = str((self.home.parent / person if person else self.home) / rest)
        text = _FOLDER_OF_PROCESS.sub(str(folder or self.folder), text)
        absolute = _ROOT_OF_PROCESS.sub("/", str((folder or self.folder) / text))
        written = "/" + os.path.normpath(absolute).lstrip("/")
        found = [written, os.path.realpath(absolute), os.path.realpath(written)]
        if 0 < sum(map(bool, map(_GLOB.search, Path(absolute).parts))) <= _MAX_WILDCARDS:
            found += map(os.path.realpath, islice(glob.iglob(absolute), _MAX_MATCHES))  # noqa: PTH207 -- absolute
        return tuple(map(Path, dict.fromkeys(found)))

    def is_secret(self, path: Path) -> bool:
        """Return whether a path holds credentials; globs count as everything they could match."""
        if path.suffix == ".pub" or path.name in _HARMLESS_NAMES:
            return False
        if _is_specific(path.name) and any(_could_match(path.name, name) for name in _CREDENTIAL_NAMES):
            return True
        if _PROCESS_SECRETS.match(str(path)):
            return True
        if any(path.is_relative_to(folder) for folder in self.readable):
            return False
        return _reaches_any(path, _list_credential_paths(self.home, self.protected))

    def contains_secrets(self, path: Path) -> bool:
        """Return whether a folder contains credentials below it: a home, or a folder of homes."""
        return self.home.is_relative_to(path) or any(folder.is_relative_to(path) for folder in self.protected)

    def is_start_up(self, path: Path) -> bool:
        """Return whether a file there runs, or instructs an agent, automatically later."""
        if ".git" in path.parts and ("hooks" in path.parts or path.name in ("config", "config.worktree")):
            return True
        inside = path.relative_to(self.folder).parts if path.is_relative_to(self.folder) else ()
        if path.name in _INSTRUCTIONS or ".talaria" in inside:  # chats work below ~/.talaria themselves
            return True
        return _reaches_any(path, tuple(str(self.home / name) for name in _START_UP_AT_HOME))

    def is_outside(self, path: Path) -> bool:
        """Return whether a path is neither in the working folder nor created by this session in a temporary folder."""
        inside = (self.folder, *map(Path, _ALWAYS_WRITABLE))
        real = Path(os.path.realpath(path))
        if any(path.is_relative_to(folder) and real.is_relative_to(os.path.realpath(folder)) for folder in inside):
            return False
        return not (self._is_scratch(path) and self._is_scratch(real))

    def is_vital(self, path: Path) -> bool:
        """Return whether losing the path would destroy the machine or the user's home."""
        if _GLOB.search(str(path)):
            return any(_matches(path, Path(one)) for one in (*_VITAL, str(self.home)))
        homes = (self.home, Path(os.path.realpath(self.home)))
        return str(path) in _VITAL or any(home.is_relative_to(path) for home in homes)

    def write_danger(self, paths: Sequence[Path], subject: str) -> Danger | None:
        """Return the worst danger of writing to any of these paths."""
        if path := next(filter(is_device, paths), None):
            return Danger("device", f"overwrites the device {path}", subject, fatal=True)
        if path := next(filter(self.is_secret, paths), None):
            return Danger("credentials", f"writes to a credentials folder: {path}", subject)
        if path := next(filter(self.is_start_up, paths), None):
            return Danger("start-up", f"changes a file that runs or gives instructions automatically: {path}", subject)
        if path := next(filter(self.is_outside, paths), None):
            return Danger("outside", f"writes outside the working folder: {path}", subject)
        return None

    def _is_scratch(self, path: Path) -> bool:
        """Return whether this session creates the path in a temporary folder; record it if it is new."""
        folder = next((one for one in _SCRATCH if path.is_relative_to(one) and str(path) != one), None)
        if folder is None:
            return False
        entry = str(Path(folder, path.relative_to(folder).parts[0]))
        if entry in self.scratch:
            return True
        if _GLOB.search(entry) or os.path.lexists(entry):
            return False
        self.scratch.add(entry)
        return True


def is_device(path: Path) -> bool:
    """Return whether writing there overwrites a disk or memory."""
    return bool(_DEVICES.match(str(path)))


def is_start_up_name(text: str) -> bool:
    """Return whether a relative path may name a start-up file, whatever its folder."""
    path = Path(text)
    return path.name in _START_UP_NAMES or ".git" in path.parts


def mentions_credentials(code: str) -> bool:
    """Return whether code mentions a credentials path."""
    return bool(_CREDENTIALS_IN_CODE.search(code))


def _is_specific(name: str) -> bool:
    """Return whether a glob is specific: ``*`` and ``*.json`` are not, ``.e*`` is."""
    literal = _GLOB.split(name)[0]
    return literal == name or len(literal) > 1 or literal == "."


def _could_match(pattern: str, name: str) -> bool:
    """Return whether a path component, possibly a glob, matches ``name``, possibly one of our globs."""
    if not _GLOB.search(pattern):
        return fnmatchcase(pattern, name)
    return pattern.startswith(".") == name.startswith(".") and "*" not in name and fnmatchcase(name, pattern)


@lru_cache(maxsize=64)
def _list_credential_paths(home: Path, protected: tuple[Path, ...]) -> tuple[str, ...]:
    homes = (home, Path(os.path.realpath(home)), Path("/root"))
    at_home = (str(one / name) for one in homes for name in _CREDENTIALS_AT_HOME)
    own_paths = (str(one) for folder in protected for one in (folder, Path(os.path.realpath(folder))))
    return (*dict.fromkeys((*at_home, *_CREDENTIALS_OF_THE_SYSTEM, *own_paths)),)


def _reaches_any(path: Path, targets: tuple[str, ...]) -> bool:
    """Return whether ``path`` is one of the targets or inside one."""
    text = str(path)
    if not _GLOB.search(text):
        return f"{text}/".startswith(tuple(f"{target}/" for target in targets))
    return any(_could_reach(path.parts, Path(target).parts) for target in targets)


def _could_reach(parts: tuple[str, ...], target: tuple[str, ...]) -> bool:
    if len(parts) < len(target):
        return False
    return all(have == want or _could_match(have, want) for have, want in zip(parts, target, strict=False))


def _matches(pattern: Path, path: Path) -> bool:
    return len(pattern.parts) == len(path.parts) and _could_reach(pattern.parts, path.parts)
