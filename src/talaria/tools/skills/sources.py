"""Sources of skills: folders, git repositories and zip archives, read without running or unpacking anything."""

import asyncio
import hashlib
import os
import re
import stat
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from msgspec import Struct

from talaria.contracts.skills import SkillOrigin, SourceKind
from talaria.core.errors import ToolFailed
from talaria.tools.skills.registry import HEAD

MAX_FILES = 500  # of one skill
MAX_BYTES = 10_000_000  # of one skill
_MAX_ENTRIES = 20_000  # of a source
_MAX_ARCHIVE = 50_000_000  # bytes of an archive
_MAX_FETCH_KB = 200_000  # of a file that git writes
_GIT_SECONDS = 120
_LEFT_OUT = frozenset({".git", "__pycache__", "node_modules", ".DS_Store"})
_GIT_SCHEMES = ("git://", "ssh://", "git+ssh://", "file://")
_SCP_ADDRESS = re.compile(r"[\w.-]+@[\w.-]+:(?!//).+")
_TREE_PAGE = re.compile(r"(https://github\.com/[^/]+/[^/]+)/tree/([^/]+)/?(.*)")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"[A-Za-z0-9][\w./+-]*")


class SourceEntry(Struct, frozen=True):
    """A file in a source; a link or anything else that isn't a file has a ``problem``."""

    size: int
    executable: bool = False
    problem: str = ""


class SkillSource(Struct, frozen=True, kw_only=True):
    """An open source: its files by path, and a function that reads one of them; ``folder`` is the requested part."""

    kind: SourceKind
    address: str
    entries: Mapping[str, SourceEntry]
    read: Callable[[str], bytes]
    ref: str = ""
    pin: str = ""
    folder: str = ""

    def make_origin(self, path: str) -> SkillOrigin:
        """Return the origin of the skill in this folder."""
        return SkillOrigin(kind=self.kind, source=self.address, path=path, ref=self.ref, pin=self.pin)

    def find_skill_folders(self) -> list[str]:
        """Return the folders that contain a SKILL.md; those inside a skill belong to it."""
        found: list[str] = []
        for path in sorted(self.entries, key=lambda one: (one.count("/"), one)):
            folder = path.removesuffix(HEAD).rstrip("/")
            if PurePosixPath(path).name != HEAD or not _is_inside(folder, self.folder):
                continue
            if not any(_is_inside(folder, one) for one in found):
                found.append(folder)
        return sorted(found)

    def read_skill(self, folder: str) -> dict[str, tuple[bytes, bool]]:
        """Return content and executable bit of each file of a skill, by its path in it; raises `ToolFailed`."""
        chosen = {path: one for path, one in self.entries.items() if _is_inside(path, folder)}
        if len(chosen) > MAX_FILES:
            raise ToolFailed(f"it has {len(chosen):,} files; a skill may have at most {MAX_FILES}")
        if sum(one.size for one in chosen.values()) > MAX_BYTES:
            raise ToolFailed(f"its files have more than {MAX_BYTES // 1_000_000} MB together")
        for path, one in chosen.items():
            if one.problem:
                raise ToolFailed(f"{path} {one.problem}")
        skip = len(folder) + 1 if folder else 0
        return {path[skip:]: (self._read_checked(path, one.size), one.executable) for path, one in chosen.items()}

    def _read_checked(self, path: str, size: int) -> bytes:
        content = self.read(path)
        if len(content) != size:
            raise ToolFailed(f"{path} doesn't have the size that the source says")
        return content


@contextmanager
def open_source(address: str, ref: str = "") -> Iterator[SkillSource]:
    """Fetch and open a source until the block ends; raises `ToolFailed` with the reason if that fails."""
    page = _TREE_PAGE.fullmatch(address)
    if page is not None:
        with _open_git(page[1], ref or page[2], page[3].rstrip("/")) as source:
            yield source
        return
    local = Path(address.removeprefix("file://")).expanduser()
    scheme = urlsplit(address).scheme
    if _is_archive(address):
        content = _download(address) if scheme in ("http", "https") else _read_archive(local)
        yield _open_zip(content, address if scheme in ("http", "https") else str(local.absolute()))
    elif "://" not in address and local.is_dir():
        yield _open_folder(local.absolute())
    elif scheme in ("http", "https") or address.startswith(_GIT_SCHEMES) or _SCP_ADDRESS.fullmatch(address):
        with _open_git(address, ref) as source:
            yield source
    else:
        raise ToolFailed(f"{address} is neither a folder, nor a zip file, nor the address of a git repository")


def _is_inside(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")


def _is_archive(address: str) -> bool:
    return urlsplit(address).path.lower().endswith((".zip", ".skill"))


def _is_left_out(path: str) -> bool:
    return not _LEFT_OUT.isdisjoint(path.split("/"))


def _open_folder(folder: Path) -> SkillSource:
    entries: dict[str, SourceEntry] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in _LEFT_OUT)
        links = [one for one in folders if os.path.islink(f"{parent}/{one}")]  # noqa: PTH114 (there are many)
        for name in (*names, *links):
            path = Path(parent, name)
            relative = str(path.relative_to(folder))
            if not _is_left_out(relative):
                entries[relative] = _describe_file(path)
        if len(entries) > _MAX_ENTRIES:
            raise ToolFailed(f"{folder} has more than {_MAX_ENTRIES:,} files")
    return SkillSource(kind="folder", address=str(folder), entries=entries, read=partial(_read_plain, folder))


def _describe_file(path: Path) -> SourceEntry:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return SourceEntry(0, problem="is a link, which a skill may not contain")
    if not stat.S_ISREG(status.st_mode):
        return SourceEntry(0, problem="isn't a file")
    return SourceEntry(status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _read_plain(folder: Path, path: str) -> bytes:
    try:
        with (folder / path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"{path} can't be read: {error.strerror}") from error


_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError, OSError)


def _open_zip(content: bytes, address: str) -> SkillSource:
    try:
        archive = zipfile.ZipFile(BytesIO(content))
    except _DAMAGE as error:
        raise ToolFailed(f"{address} isn't a zip file, or it is damaged") from error
    infos = archive.infolist()
    if len(infos) > _MAX_ENTRIES:
        raise ToolFailed(f"{address} has {len(infos):,} entries; the limit is {_MAX_ENTRIES:,}")
    entries: dict[str, SourceEntry] = {}
    for info in infos:
        _check_member(info.filename)
        if info.filename in entries:
            raise ToolFailed(f"{address} contains {info.filename!r} twice")
        if not info.is_dir() and not _is_left_out(info.filename):
            entries[info.filename] = _describe_member(info)
    return SkillSource(
        kind="zip",
        address=address,
        entries=entries,
        read=partial(_read_member, archive),
        pin=hashlib.sha256(content).hexdigest(),
    )


def _check_member(name: str) -> None:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name or not name.isprintable():
        raise ToolFailed(f"the archive contains {name!r}, which would be written outside the skill")


def _describe_member(info: zipfile.ZipInfo) -> SourceEntry:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return SourceEntry(0, problem="is a link, which a skill may not contain")
    if info.flag_bits & 1:
        return SourceEntry(0, problem="is encrypted")
    return SourceEntry(info.file_size, bool(mode & stat.S_IXUSR))


def _read_member(archive: zipfile.ZipFile, path: str) -> bytes:
    try:
        with archive.open(path) as member:
            return member.read(MAX_BYTES + 1)
    except _DAMAGE as error:
        raise ToolFailed(f"{path} in the archive is damaged") from error


def _read_archive(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_ARCHIVE + 1)
    except OSError as error:
        raise ToolFailed(f"{path} can't be read: {error.strerror}") from error
    if len(content) > _MAX_ARCHIVE:
        raise ToolFailed(f"{path} has more than {_MAX_ARCHIVE // 1_000_000} MB")
    return content


def _download(url: str) -> bytes:
    from talaria.tools.web.fetch import WebClient  # noqa: PLC0415 (loaded for an archive on the web)

    async def get() -> bytes:
        client = WebClient.for_service(url, size_limit=_MAX_ARCHIVE)
        try:
            return (await client.get(url)).body
        finally:
            await client.close()

    return asyncio.run(get())


@contextmanager
def _open_git(address: str, ref: str, folder: str = "") -> Iterator[SkillSource]:
    if ref and not _REF.fullmatch(ref):
        raise ToolFailed(f"{ref!r} isn't the name of a branch, a tag or a commit")
    with TemporaryDirectory(prefix="talaria-skill-") as checkout:
        git = _Git(Path(checkout))
        git.run("init", "-q", "--bare", ".")
        git.fetch(address, ref)
        commit = git.run("rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()
        if _COMMIT.fullmatch(ref) and commit != ref:
            raise ToolFailed(f"{address} returned commit {commit[:12]} instead of {ref[:12]}")
        hashes: dict[str, str] = {}
        entries = dict(_list_tree(git.run("ls-tree", "-r", "-l", "-z", "--full-tree", commit), hashes))

        def read(path: str) -> bytes:
            return git.run("cat-file", "blob", hashes[path])

        yield SkillSource(kind="git", address=address, entries=entries, read=read, ref=ref, pin=commit, folder=folder)


def _list_tree(listing: bytes, hashes: dict[str, str]) -> Iterator[tuple[str, SourceEntry]]:
    """Yield path and description of each entry; ``hashes`` gets the object of each path."""
    lines = listing.decode("utf-8", "surrogateescape").split("\0")[:-1]
    if len(lines) > _MAX_ENTRIES:
        raise ToolFailed(f"the repository has {len(lines):,} files; the limit is {_MAX_ENTRIES:,}")
    for line in lines:
        about, _, path = line.partition("\t")
        mode, _, name, size = about.split()
        if _is_left_out(path):
            continue
        hashes[path] = name
        problem = {"120000": "is a link, which a skill may not contain", "160000": "is a submodule"}.get(mode, "")
        yield path, SourceEntry(int(size) if size.isdigit() else 0, mode == "100755", problem)


class _Git:
    """Runs git in a bare repository without hooks, prompts, filters and helpers that the remote could choose."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, address: str, ref: str) -> None:
        """Fetch one commit.

        A plain web server has no shallow copies, and some servers don't serve single commits: all is fetched then.
        """
        options = ("fetch", "-q", "--no-recurse-submodules")
        try:
            self.run(*options, "--no-tags", "--depth=1", "--", address, ref or "HEAD")
        except ToolFailed:
            if _COMMIT.fullmatch(ref):
                self.run(*options, "--", address, "+refs/*:refs/fetched/*")
                self.run(*options, ".", ref)
            elif address.startswith("http"):
                self.run(*options, "--no-tags", "--", address, ref or "HEAD")
            else:
                raise

    def run(self, *arguments: str) -> bytes:
        """Return the output of a git command, or raise `ToolFailed` with git's own message."""
        command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", *arguments]
        limited = ["sh", "-c", f'ulimit -f {_MAX_FETCH_KB}; exec "$@"', "sh", *command]
        variables = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["env", *(f"{name}={value}" for name, value in variables.items()), *limited],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"git took more than {_GIT_SECONDS} seconds") from error
        if done.returncode == 127:
            raise ToolFailed("git isn't installed: install it, or use a folder or a zip file")
        if done.returncode:
            raise ToolFailed(_explain_git(done.stderr.decode("utf-8", "replace"), done.returncode))
        return done.stdout


def _explain_git(stderr: str, code: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    message = next((line for line in lines if line.startswith(("ssh:", "fatal:", "error:", "remote:"))), "")
    reason = message.partition(":")[2].strip() if message else f"exit code {code}"
    return f"git failed: {reason.rstrip('.')}"
