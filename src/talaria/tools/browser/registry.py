"""Browsers of all sessions of a profile, kept over restarts and ended with their session, and live views."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from playwright.async_api import CDPSession, Page, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from talaria.contracts.browser import BrowserInput, BrowserOptions, LiveView, ViewFrame
from talaria.core.errors import NotFound, Refused, ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.browser.connection import BrowserConnection, describe_error
from talaria.tools.browser.session_browser import SessionBrowser
from talaria.tools.browser.session_folder import BrowserFolder

_COOKIES = "cookies.json"
_SCREENCAST = {"format": "jpeg", "quality": 60, "maxWidth": 1280, "maxHeight": 1280}
_CHECK_SECONDS = 1.0  # for a new title, tab or dialog, which a screencast doesn't report


class BrowserRegistry:
    """Browsers of the sessions below ``root``, one folder for each; connections belong to one event loop."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._sessions: dict[SessionId, SessionBrowser] = {}
        self._driver: Playwright | None = None
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()

    def get_browser(
        self, session_id: SessionId, options: Callable[[], BrowserOptions], *, shares_cookies: bool = False
    ) -> SessionBrowser:
        """Return the browser of a session; nothing is started yet."""
        if session_id not in self._sessions:
            cookies = self._root / _COOKIES if shares_cookies and options().keep_cookies else None
            folder = BrowserFolder(self._root / session_id)
            self._sessions[session_id] = SessionBrowser(folder, options, self._environment, self._drive, cookies)
        return self._sessions[session_id]

    async def _drive(self) -> Playwright:
        async with self._lock:
            if self._driver is None:
                self._driver = await self._stack.enter_async_context(async_playwright())
            return self._driver

    async def release(self, session_id: SessionId) -> None:
        """Disconnect from a browser, which stays; without connections, Playwright's driver ends too."""
        found = self._sessions.pop(session_id, None)
        if found is not None:
            await found.release()
        await self._end_unused_driver()

    def forget(self, session_id: SessionId) -> None:
        """Forget the connection to a browser that is being ended."""
        self._sessions.pop(session_id, None)

    async def open_view(self, session_id: SessionId, options: Callable[[], BrowserOptions]) -> LiveView:
        """Return a live view of a running browser; raises `NotFound` if there is none."""
        browser = self.get_browser(session_id, options)
        try:
            return PageView(browser, await browser.open_view())
        except ToolFailed as error:
            raise NotFound("This conversation has no running browser.") from error

    async def close(self) -> None:
        """Disconnect from all browsers."""
        for session_id in list(self._sessions):
            await self.release(session_id)
        await self._end_unused_driver()  # also after sessions that are forgotten

    async def _end_unused_driver(self) -> None:
        async with self._lock:
            if not self._sessions and self._driver is not None:
                self._driver = None
                await self._stack.aclose()


class PageView:
    """View of the current tab; it follows the browser to other tabs."""

    def __init__(self, browser: SessionBrowser, connection: BrowserConnection) -> None:
        self._browser = browser
        self._connection = connection
        self._is_own = connection is not browser.connection
        self._page: Page | None = None
        self._cast: CDPSession | None = None
        self._image = ""
        self._size = (0, 0)
        self._fresh = asyncio.Event()
        self._is_closed = False

    async def frames(self) -> AsyncIterator[ViewFrame]:
        """Yield frames as the page changes; a slow reader gets fewer."""
        last = ViewFrame()
        while not self._is_closed and self._connection.is_connected:
            try:
                await self._follow()
                frame = await self._make_frame()
            except (PlaywrightError, ToolFailed):
                return
            if frame != last:
                yield (
                    frame
                    if frame.image != last.image
                    else ViewFrame(url=frame.url, title=frame.title, dialog=frame.dialog)
                )
                last = frame
            self._browser.folder.touch()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._fresh.wait()
            self._fresh.clear()

    async def _make_frame(self) -> ViewFrame:
        dialog = self._connection.dialogs.open
        assert self._page is not None
        title = "" if dialog is not None else await self._page.title()
        return ViewFrame(
            image=self._image,
            width=self._size[0],
            height=self._size[1],
            url=self._page.url,
            title=title,
            dialog=f"{dialog.type}: {dialog.message}" if dialog is not None else "",
        )

    async def _follow(self) -> None:
        """Start the screencast of the current tab."""
        page = self._connection.page
        if page is self._page:
            return
        await self._stop()
        self._page = page
        self._cast = await self._connection.context.new_cdp_session(page)
        self._cast.on("Page.screencastFrame", self._on_frame)
        await self._cast.send("Page.startScreencast", _SCREENCAST)

    async def _on_frame(self, frame: dict[str, Any]) -> None:
        cast = self._cast
        self._image = frame["data"]
        self._size = round(frame["metadata"]["deviceWidth"]), round(frame["metadata"]["deviceHeight"])
        self._fresh.set()
        if cast is not None:
            with suppress(PlaywrightError):
                await cast.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    async def send(self, inputs: Sequence[BrowserInput]) -> None:
        """Pass inputs on, in order; raises `Refused` unless the person has taken over."""
        if not self._browser.folder.handover.is_with_person:
            raise Refused("Take over first: the agent is using the browser.")
        self._connection.dialogs.set_with_person(is_there=True)
        self._browser.folder.touch()
        try:
            for one in inputs:
                await self._send_one(self._connection.page, one)
        except ToolFailed as error:
            raise Refused(str(error)) from error
        except PlaywrightError as error:
            raise Refused(describe_error(error)) from error

    async def _send_one(self, page: Page, one: BrowserInput) -> None:
        match one.kind:
            case "move":
                await page.mouse.move(one.x, one.y)
            case "down":
                await page.mouse.move(one.x, one.y)
                await page.mouse.down()
            case "up":
                await page.mouse.up()
            case "wheel":
                await page.mouse.wheel(one.delta_x, one.delta_y)
            case "type":
                await page.keyboard.insert_text(one.text)
            case "key":
                await page.keyboard.press(one.text)
            case "open":
                url = one.text if "://" in one.text else f"https://{one.text}"
                await self._connection.check_address(url)
                await page.goto(url, wait_until="commit")
            case "back":
                await page.go_back(wait_until="commit")
            case "dialog":
                await self._connection.dialogs.answer(accept=one.accept, text=one.text)

    async def _stop(self) -> None:
        cast, self._cast, self._page = self._cast, None, None
        if cast is not None:
            with suppress(PlaywrightError):
                await cast.send("Page.stopScreencast")
                await cast.detach()

    async def close(self) -> None:
        """End the view, and its connection if the agent doesn't use it."""
        self._is_closed = True
        self._fresh.set()
        await self._stop()
        if self._is_own:
            await self._connection.close()
