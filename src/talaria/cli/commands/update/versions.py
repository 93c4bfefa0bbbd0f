"""Environments of several Talaria versions, the launcher that selects one, and the record of an update."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from talaria.core.errors import Refused
from talaria.core.installation import DISTRIBUTION, Installation, Installer
from talaria.settings.atomic_files import make_folder, read_file, write_file

INSTALLED = "installed"  # the version in the environment that the installer made
_STATE_FILE = "update.json"
_COMPLETE = "talaria-complete"
_NOT_COPIED = ("pip", "setuptools", "wheel")
_SUMMARY_EXTRAS = ("all", "testing")
_NAME = re.compile(r"^([\w.-]+)(?:\[([\w,. -]+)\])?")
_EXTRA = re.compile(r"""extra == ["']([\w.-]+)["']""")


class RunningGateway(Struct, frozen=True):
    """Gateway that was running before an update; ``is_service`` if a service manager runs it."""

    profile: str
    is_service: bool = False
    is_ready: bool = False


class PendingUpdate(Struct, frozen=True):
    """Switch from one version to another that isn't finished; ``backups`` are files by profile."""

    before: str
    after: str
    gateways: tuple[RunningGateway, ...] = ()
    backups: dict[str, str] = {}


class UpdateRecord(Struct, frozen=True):
    """Record of the last update: the version before the current one, and the backups of the stores."""

    previous: str = ""
    backups: dict[str, str] = {}
    pending: PendingUpdate | None = None


class Versions:
    """Versions of one installation: one folder each, and the launcher that leads to one of them."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._folder = installation.versions_folder
        self.launcher = installation.launcher

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this installation; raises `Refused` while another update runs."""
        make_folder(self._folder)
        handle = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise Refused("Another update is running. Wait until it is done, then try again.") from error
        finally:
            os.close(handle)

    @property
    def record(self) -> UpdateRecord:
        """The stored record; empty if there is none."""
        content = read_file(self._folder / _STATE_FILE)
        try:
            return msgspec.json.decode(content, type=UpdateRecord) if content else UpdateRecord()
        except msgspec.DecodeError as error:
            raise Refused(f"{self._folder / _STATE_FILE} can't be read. Delete it and try again.") from error

    def write(self, record: UpdateRecord) -> None:
        """Replace the record durably."""
        make_folder(self._folder)
        write_file(self._folder / _STATE_FILE, msgspec.json.format(msgspec.json.encode(record)).decode())

    def begin(self, pending: PendingUpdate) -> None:
        """Record a switch before it happens, or how far it is."""
        self.write(structs.replace(self.record, pending=pending))

    @property
    def selected(self) -> str:
        """The name of the version that the launcher starts."""
        if not self.launcher.is_symlink():
            return INSTALLED
        return (self.launcher.parent / self.launcher.readlink()).parent.parent.name

    def select(self, name: str) -> None:
        """Make the launcher start a version; at every moment it starts the old or the new one."""
        if not self.launcher.is_symlink():
            self._adopt_installed()
        target = self._folder / name / "bin" / "talaria"
        if not target.exists():
            raise Refused(f"Version {name} isn't there any more: {target} is missing.")
        draft = self.launcher.with_name(f".talaria.{os.getpid()}.new")
        draft.unlink(missing_ok=True)
        draft.symlink_to(os.path.relpath(target, self.launcher.parent))
        draft.replace(self.launcher)

    def read_version(self, name: str) -> str:
        """Return the number of a version, as it reports it itself; raises `Refused` if it doesn't start."""
        is_plain = name == INSTALLED and not self.launcher.is_symlink()
        program = self.launcher if is_plain else self._folder / name / "bin" / "talaria"
        try:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        except OSError as error:
            raise Refused(f"{program} doesn't start: {error.strerror}.") from error
        if done.returncode or not done.stdout.startswith("talaria "):
            raise Refused(f"{program} doesn't start:\n{done.stderr.strip()[-1000:]}")
        return done.stdout.split()[1]

    def prepare(self, version: str, installer: Installer, report: Callable[[str], None]) -> Path:
        """Install a version into its own environment, unless it is there; return its launcher."""
        folder = self._folder / version
        program = folder / "bin" / "talaria"
        if not (folder / _COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_folder(self._folder)
            try:
                requirement = describe_requirement(version)
                report(f"Installing {requirement} with {installer.name} into {folder} …")
                installer.make_environment(folder).install(requirement)
                copy_other_packages(folder)
                self._check_version(version)
                (folder / _COMPLETE).touch()
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return program

    def prune(self, *keep: str) -> None:
        """Remove all environments except these."""
        for folder in self._folder.iterdir():
            if folder.is_dir() and folder.name not in (INSTALLED, *keep):
                shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove all versions that `talaria update` installed; the launcher starts the installed one again."""
        installed = self._folder / INSTALLED / "bin" / "talaria"
        if self.launcher.is_symlink() and installed.exists():
            installed.replace(self.launcher)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_version(self, version: str) -> None:
        found = self.read_version(version)
        if found != version:
            raise Refused(f"The package index has version {found} under the number {version}. Report this.")

    def _adopt_installed(self) -> None:
        """Copy the installer's launcher to where `select` finds it; its first line names its own Python."""
        folder = self._folder / INSTALLED / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".talaria.new"
        shutil.copy2(self.launcher, draft)
        draft.replace(folder / "talaria")


def describe_requirement(version: str) -> str:
    """Return the requirement for a version, with the extras whose packages are installed here."""
    found = distribution(DISTRIBUTION)
    extras = [
        extra
        for extra in found.metadata.get_all("Provides-Extra", [])
        if extra not in _SUMMARY_EXTRAS and _is_installed(found, extra)
    ]
    return f"{DISTRIBUTION}[{','.join(extras)}]=={version}" if extras else f"{DISTRIBUTION}=={version}"


def copy_other_packages(folder: Path) -> None:
    """Copy the packages that Talaria doesn't require into another environment of the same Python.

    They are the weights of the built-in model, which are large, and packages that the user has added.
    """
    target = next(folder.glob("lib/python*/site-packages"))
    present = {_normalize(found.name) for found in distributions(path=[str(target)])}
    known = {*_NOT_COPIED, *present, *_list_required(DISTRIBUTION)}
    for found in distributions():
        if _normalize(found.name) not in known:
            _copy_package(found, target)


def _copy_package(found: Distribution, target: Path) -> None:
    root = Path(str(found.locate_file("")))
    for file in found.files or ():
        source = root / file
        if ".." in file.parts or file.is_absolute() or not source.is_file():
            continue
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.exists():
            continue
        try:
            copy.hardlink_to(source)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(source, copy)


def _list_required(name: str) -> set[str]:
    """Return the names of a package and all it requires, extras included, as far as they are installed."""
    known: set[str] = set()
    pending = [_normalize(name)]
    while pending:
        one = pending.pop()
        if one in known:
            continue
        known.add(one)
        with suppress(PackageNotFoundError):
            required = (_NAME.match(requirement) for requirement in distribution(one).requires or [])
            pending += [_normalize(found[1]) for found in required if found]
    return known


def _is_installed(found: Distribution, extra: str) -> bool:
    """Return whether all packages of an extra are installed, including those of their extras."""
    for requirement in found.requires or []:
        named, parsed = _EXTRA.search(requirement), _NAME.match(requirement)
        if named is None or named[1] != extra or parsed is None:
            continue
        try:
            needed = distribution(parsed[1])
        except PackageNotFoundError:
            return False
        nested = [one.strip() for one in (parsed[2] or "").split(",") if one.strip()]
        if not all(_is_installed(needed, one) for one in nested):
            return False
    return True


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
