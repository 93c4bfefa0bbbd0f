"""Folder of one session's browser: launch options, state of the running process, control by the person."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.browser import BrowserStatus
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId, is_id
from talaria.core.os_processes import is_same_process, kill_tree

_OWNER_ONLY = 0o700
_PRIVATE = 0o600
_POLL = 0.05
_START_SECONDS = 60.0
_END_SECONDS = 10.0
_MOST_LAUNCHES = 3
_BLOCKED_LIMIT = 65_536
_SINGLETONS = ("SingletonLock", "SingletonSocket", "SingletonCookie")


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """Options of a browser; ``environment`` is all it gets of ours, ``proxies`` what its holder gets."""

    executable: str
    visible: bool = False
    idle_seconds: float = 1800.0
    allowed_hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    proxies: Mapping[str, str] = {}


class BrowserState(Struct, frozen=True, kw_only=True):
    """A running browser: its holder, where to connect, and whether Chromium's sandbox is on.

    ``error`` is set instead if it could not be started.
    """

    pid: int
    started: str
    machine: str
    browser_pid: int = 0
    endpoint: str = ""
    sandboxed: bool = True
    visible: bool = False
    error: str = ""


class Handover:
    """Control over a browser: a file says that the person has it, in all processes."""

    def __init__(self, path: Path) -> None:
        self._file = path / "person"

    @property
    def is_with_person(self) -> bool:
        """Return whether the person has taken over."""
        return self._file.exists()

    def give_to_person(self) -> None:
        """Let the person use the browser; the agent's actions wait."""
        self._file.parent.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
        self._file.touch(_PRIVATE)

    def give_to_agent(self) -> None:
        """Hand the browser back to the agent."""
        self._file.unlink(missing_ok=True)


class BrowserFolder:
    """Files of a session's browser, used by its holder and by every process that connects to it.

    The holder locks ``lock`` as long as it lives, so a browser is running if and only if that file is locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.downloads = path / "downloads"
        self.log = path / "log"
        self.lock = path / "lock"
        self.remove_marker = path / "remove"
        self._options = path / "options.json"
        self._state = path / "state.json"
        self._used = path / "used"
        self.handover = Handover(path)
        self._blocked = path / "blocked"
        self._last_page = path / "last-page"

    def prepare(self) -> None:
        """Create the folder."""
        self.path.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
        self.downloads.mkdir(_OWNER_ONLY, exist_ok=True)

    def read_options(self) -> LaunchOptions:
        """Return the options of the last start."""
        return msgspec.json.decode(self._options.read_bytes(), type=LaunchOptions)

    def write_options(self, options: LaunchOptions) -> None:
        """Store the options; a running holder applies the allowed hosts and the idle limit."""
        _replace(self._options, msgspec.json.encode(options))

    def read_state(self) -> BrowserState | None:
        """Return the state that the holder wrote; ``None`` if there is none."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=BrowserState)
        except (OSError, msgspec.MsgspecError):
            return None

    def write_state(self, state: BrowserState | None) -> None:
        """Store the state of the browser, or delete it."""
        if state is None:
            self._state.unlink(missing_ok=True)
        else:
            _replace(self._state, msgspec.json.encode(state))

    @property
    def is_running(self) -> bool:
        """Return whether a holder is alive."""
        try:
            with self.lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def touch(self) -> None:
        """Record that the browser is in use."""
        with suppress(OSError):
            self._used.touch(_PRIVATE)

    @property
    def used_at(self) -> float:
        """The time of the last use, in seconds since the epoch."""
        try:
            return self._used.stat().st_mtime
        except OSError:
            return 0.0

    def add_blocked(self, host: str) -> None:
        """Record a blocked connection."""
        with suppress(OSError), self._blocked.open("a") as file:
            if file.tell() < _BLOCKED_LIMIT:
                file.write(f"{host}\n")

    def take_blocked(self) -> tuple[str, ...]:
        """Return the hosts that were blocked since the last call."""
        try:
            text = self._blocked.read_text()
            self._blocked.unlink(missing_ok=True)
        except OSError:
            return ()
        return tuple(dict.fromkeys(text.split()))

    def remember_page(self, url: str) -> None:
        """Store the address of the current page, for a restart."""
        with suppress(OSError):
            _replace(self._last_page, url.encode())

    @property
    def last_page(self) -> str:
        """The address of the last page; empty if there is none."""
        try:
            return self._last_page.read_text()
        except OSError:
            return ""

    async def start(self, options: LaunchOptions) -> BrowserState:
        """Return the running browser, started if necessary, or raise `ToolFailed`."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                return await self._start(options)
        except TimeoutError:
            raise ToolFailed(f"The browser didn't start within {_START_SECONDS:.0f} s. Its log: {self.log}") from None

    async def _start(self, options: LaunchOptions) -> BrowserState:
        launches = 0
        while True:
            failed = self.read_state() if launches else None
            if failed is not None and failed.error:
                raise ToolFailed(failed.error)
            if not self.is_running:
                if launches == _MOST_LAUNCHES:
                    raise ToolFailed(f"The browser ended right after its start. Its log: {self.log}")
                launches += 1
                await asyncio.to_thread(self._launch, options)
            state = self.read_state()
            if state is not None and state.endpoint and not self.remove_marker.exists():
                self.write_options(options)
                return state
            await asyncio.sleep(_POLL)

    def _launch(self, options: LaunchOptions) -> None:
        """Start the holder, which forks when it has the lock; another one may be faster."""
        self.prepare()
        self.remove_marker.unlink(missing_ok=True)
        self.touch()
        self.write_options(options)
        self.write_state(None)
        with self.log.open("wb") as log:
            subprocess.run(
                [sys.executable, "-I", "-m", "talaria.tools.browser.holder", str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, **options.proxies},
                start_new_session=True,
                check=False,
            )

    def end_soon(self, *, remove: bool) -> None:
        """Ask the browser to end, without waiting; with ``remove`` its profile is deleted afterwards."""
        if not self.path.exists():
            return
        if remove:
            self.remove_marker.touch(_PRIVATE)
        state = self.read_state()
        if self.is_running:
            if state is not None and is_same_process(state.pid, state.started, state.machine):
                os.kill(state.pid, signal.SIGTERM)
        elif remove:
            delete_singletons(self.data)
            shutil.rmtree(self.path, ignore_errors=True)

    async def end(self, *, remove: bool = False) -> None:
        """End the browser and wait for it; kill it if it takes too long."""
        state = self.read_state()
        self.end_soon(remove=remove)
        try:
            async with asyncio.timeout(_END_SECONDS):
                while self.is_running:  # noqa: ASYNC110 (a lock of another process)
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            if state is not None and is_same_process(state.pid, state.started, state.machine):
                await asyncio.to_thread(kill_tree, state.pid)
            self.end_soon(remove=remove)


def list_browsers(root: Path) -> list[BrowserStatus]:
    """Return all browsers of a profile, used last first."""
    if not root.is_dir():
        return []
    found = [describe_browser(root, SessionId(folder.name)) for folder in root.iterdir() if is_id(folder.name)]
    return sorted(found, key=lambda one: one.used_at, reverse=True)


def describe_browser(root: Path, session_id: SessionId) -> BrowserStatus:
    """Return the state of a session's browser."""
    folder = BrowserFolder(root / session_id)
    state = folder.read_state() if folder.is_running else None
    return BrowserStatus(
        session_id=session_id,
        running=state is not None and bool(state.endpoint),
        with_person=folder.handover.is_with_person,
        visible=state is not None and state.visible,
        sandboxed=state is None or state.sandboxed,
        pid=state.browser_pid if state is not None else 0,
        url=folder.last_page,
        used_at=folder.used_at,
    )


def end_browser(root: Path, session_id: SessionId) -> None:
    """End the browser of a session without waiting, and delete its profile."""
    if is_id(session_id):
        BrowserFolder(root / session_id).end_soon(remove=True)


def end_orphans(root: Path, known: Collection[SessionId]) -> list[SessionId]:
    """End the browsers of sessions that don't exist any more, and return those sessions."""
    orphans = [one.session_id for one in list_browsers(root) if one.session_id not in known]
    for session_id in orphans:
        end_browser(root, session_id)
    return orphans


def delete_singletons(profile: Path) -> None:
    """Delete the files with which a browser claims its profile; the caller holds the lock, or nothing does.

    Its socket is in a folder of the system's temporary folder, which a killed browser leaves there.
    """
    with suppress(OSError):
        socket = (profile / "SingletonSocket").readlink()
        for name in ("SingletonSocket", "SingletonCookie"):
            socket.with_name(name).unlink(missing_ok=True)
        socket.parent.rmdir()
    for name in _SINGLETONS:
        (profile / name).unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.touch(_PRIVATE)
    fresh.write_bytes(content)
    fresh.replace(path)
