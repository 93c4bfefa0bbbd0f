"""Browsers of all sessions of a profile: opened on first use, kept over restarts, ended with their session."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import Playwright, async_playwright

from talaria.contracts.browser import BrowserOptions, LiveView
from talaria.core.errors import NotFound, ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.browser.live_view import PageView
from talaria.tools.browser.session_browser import SessionBrowser
from talaria.tools.browser.session_folder import BrowserFolder

_COOKIES = "cookies.json"


class BrowserRegistry:
    """Browsers of the sessions below ``root``, one folder for each; connections belong to one event loop."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._sessions: dict[SessionId, SessionBrowser] = {}
        self._driver: Playwright | None = None
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()

    def session(
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
        browser = self.session(session_id, options)
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
