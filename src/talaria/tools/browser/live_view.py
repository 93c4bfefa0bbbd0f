"""Live view of a page for a person who takes over: screencast frames out, mouse and keyboard in."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from playwright.async_api import CDPSession, Page
from playwright.async_api import Error as PlaywrightError

from talaria.contracts.browser import BrowserInput, ViewFrame
from talaria.core.errors import Refused, ToolFailed
from talaria.tools.browser.connection import BrowserConnection, describe_error
from talaria.tools.browser.session_browser import SessionBrowser

_SCREENCAST = {"format": "jpeg", "quality": 60, "maxWidth": 1280, "maxHeight": 1280}
_CHECK_SECONDS = 1.0  # for a new title, tab or dialog, which a screencast doesn't report


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
