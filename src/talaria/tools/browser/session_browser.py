"""The browser of one session in this process: connects, reconnects after a crash, and takes snapshots."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import Browser, Frame, Page, Playwright
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from talaria.contracts.browser import BrowserOptions
from talaria.core.chromium import has_display, require_executable
from talaria.core.errors import ToolFailed
from talaria.tools.browser.connection import BrowserConnection, convert_errors
from talaria.tools.browser.session_folder import BrowserFolder, BrowserState, LaunchOptions
from talaria.tools.browser.snapshot import PageSnapshot, make_snapshot
from talaria.tools.web.ssrf_guard import Guard

_PASSED_ON = (
    "PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR", "FONTCONFIG_PATH",
)  # fmt: skip
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CONNECT_SECONDS = 30.0
_PATIENCE = 120.0  # for the person to hand the browser back
_POLL = 0.2
_FRAME_SECONDS = 1.0
_SHORT_SECONDS = 2.0
_PASSWORDS = (
    """() => [...document.querySelectorAll('input[type=password]')].map(input => input.value).filter(Boolean)"""
)
_MASK = "••••"
RESTARTED = "The browser had ended and was started again; the last page was opened again."
WITH_PERSON = (
    "The person is using the browser right now. Wait until they hand it back, or ask them whether they are done."
)
log = logging.getLogger(__name__)


class SessionBrowser:
    """Browser of a session; ``drive`` returns Playwright's driver, which all sessions of a process share.

    Without ``cookies``, nothing is stored for other sessions.
    """

    def __init__(
        self,
        folder: BrowserFolder,
        options: Callable[[], BrowserOptions],
        environment: Mapping[str, str],
        drive: Callable[[], Awaitable[Playwright]],
        cookies: Path | None = None,
    ) -> None:
        self.folder = folder
        self._options = options
        self._environment = environment
        self._drive = drive
        self._cookies = cookies
        self._stored_cookies: list[Any] | None = None
        self._connection: BrowserConnection | None = None
        self._lock = asyncio.Lock()
        self.last: PageSnapshot | None = None
        self.notes: list[str] = []

    @property
    def connection(self) -> BrowserConnection | None:
        """The connection, if there is a live one."""
        found = self._connection
        return found if found is not None and found.is_connected else None

    @property
    def options(self) -> BrowserOptions:
        """The options in force."""
        return self._options()

    @property
    def address(self) -> str:
        """The address of the page that the agent has seen last."""
        return self.last.url if self.last is not None else self.folder.last_page

    def describe(self, reference: str) -> str:
        """Return the description of an element in the last snapshot."""
        return self.last.labels.get(reference, "") if self.last is not None else ""

    async def connect(self) -> BrowserConnection:
        """Return the connection, after starting the browser or attaching to the one that is running."""
        async with self._lock:
            self.folder.touch()
            is_gone = not self.options.attach and not self.folder.is_running  # known before the connection breaks
            if self.connection is None or is_gone:
                await self._reconnect()
            assert self._connection is not None
            return self._connection

    async def _reconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        self._connection, self.last = None, None
        if self.options.attach:
            await self._attach()
            return
        launch = self._make_launch_options()
        was_running, last_page = self.folder.is_running, self.folder.last_page
        is_new = not self.folder.data.exists()
        state = await self.folder.start(launch)
        try:
            self._connection = await self._open(state.endpoint)
        except (PlaywrightError, TimeoutError) as error:
            log.warning("the browser of %s doesn't answer and is restarted: %s", self.folder.path.name, error)
            await self.folder.end()
            was_running, state = False, await self.folder.start(launch)
            self._connection = await convert_errors(lambda: self._open(state.endpoint))
        self._note_start(state)
        await self._restore(self._connection, is_new=is_new, page="" if was_running else last_page)

    def _note_start(self, state: BrowserState) -> None:
        if not state.sandboxed:
            log.warning("Chromium runs without its own sandbox: it can't use it as root or in this container")

    def _make_launch_options(self) -> LaunchOptions:
        def choose(names: Iterable[str]) -> dict[str, str]:
            return {name: self._environment[name] for name in names if name in self._environment}

        return LaunchOptions(
            executable=require_executable(self.options.executable_path, self._environment),
            visible=self.options.visible and has_display(self._environment),
            idle_seconds=self.options.idle_minutes * 60,
            allowed_hosts=self.options.allowed_hosts,
            environment=choose(_PASSED_ON),
            proxies=choose(_PROXIES),
        )

    async def _open(self, endpoint: str, *, attached: bool = False, viewing: bool = False) -> BrowserConnection:
        driver = await self._drive()
        browser: Browser = await driver.chromium.connect_over_cdp(
            endpoint, is_local=True, no_defaults=attached or viewing, timeout=_CONNECT_SECONDS * 1000
        )
        guard = Guard(frozenset(host.lower() for host in self.options.allowed_hosts))
        connection = BrowserConnection(browser, guard, attached=attached, timeout=self.options.timeout_seconds)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.prepare(self.folder.last_page)
        return connection

    async def _attach(self) -> None:
        """Connect to the person's own browser."""
        address = self.options.attach
        await asyncio.to_thread(self.folder.prepare)
        try:
            self._connection = await self._open(address, attached=True)
        except (PlaywrightError, TimeoutError) as error:
            raise ToolFailed(
                f"There is no browser at {address} (browser.attach). Start Chrome with "
                "--remote-debugging-port=9222 and --user-data-dir=FOLDER."
            ) from error

    async def open_view(self) -> BrowserConnection:
        """Return a connection for a person's view: the agent's, or one that changes nothing in the browser."""
        if self.connection is not None:
            return self.connection
        state = self.folder.read_state()
        if state is None or not self.folder.is_running:
            raise ToolFailed("This browser isn't running.")
        return await convert_errors(lambda: self._open(state.endpoint, viewing=True))

    async def _restore(self, connection: BrowserConnection, *, is_new: bool, page: str) -> None:
        """Give a started browser the stored cookies, and the page that was open when it ended."""
        if is_new and self._cookies is not None:
            with suppress(OSError, msgspec.MsgspecError, PlaywrightError):
                stored = msgspec.json.decode(await asyncio.to_thread(self._cookies.read_bytes))
                await connection.context.add_cookies(stored)
        if page and not is_new:
            self.notes.append(RESTARTED)
            with suppress(PlaywrightError, ToolFailed):
                await connection.check_address(page)
                await connection.page.goto(page, wait_until="commit")

    async def save_cookies(self) -> None:
        """Store the cookies for later sessions, if that is allowed and they have changed."""
        connection = self.connection
        if self._cookies is None or connection is None or connection.attached:
            return
        with suppress(PlaywrightError):
            current = await connection.context.cookies()
            if current != self._stored_cookies:
                before, self._stored_cookies = self._stored_cookies or (), list(current)
                await asyncio.to_thread(_merge_cookies, self._cookies, before, current)

    async def wait_for_control(self, step: Callable[[str], None]) -> None:
        """Wait until the person has handed the browser back, or raise `ToolFailed`."""
        if not self.folder.handover.is_with_person:
            self._set_person(is_there=False)
            return
        self._set_person(is_there=True)
        step("waiting for the person to hand the browser back")
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.wait_for_hand_back()
        except TimeoutError:
            raise ToolFailed(WITH_PERSON) from None

    async def wait_for_hand_back(self) -> None:
        """Wait until the person has handed the browser back, in any process."""
        while self.folder.handover.is_with_person:
            self.folder.touch()
            await asyncio.sleep(_POLL)
        self._set_person(is_there=False)

    def _set_person(self, *, is_there: bool) -> None:
        if self._connection is not None:
            self._connection.dialogs.set_with_person(is_there=is_there)

    def forget_page(self) -> None:
        """Forget the last snapshot: the next report shows the whole page."""
        self.last = None

    async def take_snapshot(self) -> PageSnapshot:
        """Return a new snapshot of the current page, without typed passwords."""
        connection = await self.connect()
        page = connection.page
        frames = [frame for frame in page.frames if frame != page.main_frame]
        shown, *found = await asyncio.gather(
            _read_passwords(page.main_frame, connection.timeout), *(_read_passwords(frame) for frame in frames)
        )
        if shown is None:
            raise ToolFailed(f"The page didn't react within {connection.timeout:g} s. Close its tab, then open a page.")
        late = [frame for frame, secrets in zip(frames, found, strict=True) if secrets is None]
        tree = await convert_errors(lambda: _read_tree(page, leave_out_frames=bool(late)))
        found += await asyncio.gather(*map(_read_passwords, late))  # a slow frame may be in the tree
        for secret in sorted(chain.from_iterable(filter(None, [shown, *found])), key=len, reverse=True):
            tree = tree.replace(secret, _MASK)
        self.last = make_snapshot(page.url, await convert_errors(page.title), tree)
        self.folder.remember_page(page.url)
        return self.last

    async def release(self) -> None:
        """Disconnect; the browser stays for the next agent of this session."""
        async with self._lock:
            if self._connection is not None:
                await self._connection.close()
            self._connection, self.last = None, None


async def _read_tree(page: Page, *, leave_out_frames: bool) -> str:
    """Return the accessibility tree; Playwright waits for frames that don't answer to the end of its limit."""
    if leave_out_frames:
        with suppress(PlaywrightTimeout):  # the page itself is slow
            return await page.aria_snapshot(mode="ai", timeout=_SHORT_SECONDS * 1000)
    return await page.aria_snapshot(mode="ai")


async def _read_passwords(frame: Frame, seconds: float = _FRAME_SECONDS) -> list[str] | None:
    """Return what is typed into password fields; ``None`` for a frame that doesn't answer, as blocked ones do."""
    try:
        async with asyncio.timeout(seconds):
            return list(await frame.evaluate(_PASSWORDS))
    except TimeoutError:
        return None
    except PlaywrightError:
        return []


def _merge_cookies(file: Path, before: Sequence[Any], current: Sequence[Any]) -> None:
    """Add the cookies of a session to the stored ones, and remove those that it had ``before`` and has deleted."""
    try:
        stored = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError):
        stored = []
    gone = {*map(_make_cookie_key, before)}
    merged = {
        _make_cookie_key(one): one for one in (*(one for one in stored if _make_cookie_key(one) not in gone), *current)
    }
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
    fresh.touch(0o600)
    fresh.write_bytes(msgspec.json.encode(list(merged.values())))
    fresh.replace(file)


def _make_cookie_key(cookie: Any) -> tuple[str, str, str]:
    return cookie["name"], cookie["domain"], cookie["path"]
