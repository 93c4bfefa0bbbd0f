"""Playwright's connection to the browser of one session: tabs, dialogs, downloads, console."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Download,
    Page,
    Request,
    Route,
    WebSocketRoute,
)
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from talaria.core.errors import ToolFailed
from talaria.http_client.connection import HttpAddress
from talaria.tools.web.ssrf_guard import Guard

_MOST_CONSOLE = 100
_LONGEST_MESSAGE = 500
_AWAITED = {"document", "xhr", "fetch"}
SETTLE_SECONDS = 3.0
_FRAME_SECONDS = 1.0
_NEXT_FRAME = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_INSIDE = ("about", "data", "blob")
_BLOCKED = "BlockedByClient"  # after other errors Chromium loads the page again, perhaps when we are gone
T = TypeVar("T")
log = logging.getLogger(__name__)


class PageDialogs:
    """Dialogs of pages: dismissed, or accepted if the action said so; alerts are always accepted.

    While the person has the browser, a dialog stays ``open`` for them. ``seen`` describes those of the last action.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.open: Dialog | None = None
        self._accept = False
        self._text = ""
        self._is_with_person = False

    def prepare(self, *, accept: bool = False, text: str = "") -> None:
        """Set the answer to the dialogs of the next action."""
        self._accept, self._text = accept, text

    def set_with_person(self, *, is_there: bool) -> None:
        """Leave dialogs to the person, or answer them for the agent."""
        self._is_with_person = is_there

    async def answer(self, *, accept: bool, text: str) -> None:
        """Answer the open dialog for the person; nothing happens if there is none."""
        dialog, self.open = self.open, None
        if dialog is not None:
            await (dialog.accept(text) if accept else dialog.dismiss())

    async def handle(self, dialog: Dialog, *, is_ours: bool) -> None:
        """Answer a dialog that has appeared, or leave it to the person."""
        if self._is_with_person or not is_ours:
            self.open = dialog
            return
        with suppress(PlaywrightError):
            if dialog.type in ("alert", "beforeunload") or self._accept:
                await dialog.accept(self._text)
                verb = "accepted"
            else:
                await dialog.dismiss()
                verb = "dismissed"
            self.seen.append(f'{dialog.type} "{dialog.message[:_LONGEST_MESSAGE]}" was {verb}')


class BrowserConnection:
    """A connected browser; ``page`` is the current tab.

    In the person's own browser (``attached``), only tabs that the agent uses are guarded, by intercepting requests, and
    only tabs that it opened are closed.
    """

    def __init__(self, browser: Browser, guard: Guard, *, attached: bool, timeout: float) -> None:
        self._browser = browser
        self._guard = guard
        self.attached = attached
        self.context: BrowserContext = browser.contexts[0]
        self.context.set_default_timeout(timeout * 1000)
        self.timeout = timeout
        self.console: deque[str] = deque(maxlen=_MOST_CONSOLE)
        self.dialogs = PageDialogs()
        self.blocked: list[str] = []
        self._downloads: list[Download] = []
        self._pending: set[Request] = set()
        self._changed = asyncio.Event()
        self._own: list[Page] = []
        self._guarded: set[Page] = set()
        self._page: Page | None = None

    async def prepare(self, last_page: str) -> None:
        """Choose the current tab, and watch all tabs from now on.

        In the person's own browser, that is the one that shows the agent's last page, or a new one.
        """
        self.context.on("page", self._add_page)
        for page in self.context.pages:
            self._watch(page)
        if self.attached:
            known = next((page for page in self.context.pages if last_page and page.url == last_page), None)
            self._own += [known] if known is not None else []
            await self._switch(known or await self._open_own())
        else:
            self._page = self.context.pages[-1] if self.context.pages else await self.context.new_page()

    @property
    def is_connected(self) -> bool:
        """Return whether the browser is there."""
        return self._browser.is_connected()

    @property
    def page(self) -> Page:
        """The current tab; raises `ToolFailed` if all are closed."""
        if self._page is None or self._page.is_closed():
            self._page = next((page for page in reversed(self.tabs) if not page.is_closed()), None)
        if self._page is None:
            raise ToolFailed("All tabs are closed. Open a page first.")
        return self._page

    @property
    def tabs(self) -> list[Page]:
        """All tabs, oldest first."""
        return self.context.pages

    async def ensure_page(self) -> Page:
        """Return the current tab, a new one if all are closed."""
        with suppress(ToolFailed):
            return self.page
        await self._switch(await self._open_own())
        return self.page

    async def switch(self, number: int) -> None:
        """Make another tab the current one; 0 opens a new one."""
        if number == 0:
            await self._switch(await self._open_own())
            return
        if not 1 <= number <= len(self.tabs):
            raise ToolFailed(f"There is no tab {number}; there are {len(self.tabs)}.")
        await self._switch(self.tabs[number - 1])

    async def close_tab(self, number: int) -> None:
        """Close a tab; in the person's own browser, only one that the agent has opened."""
        if not 1 <= number <= len(self.tabs):
            raise ToolFailed(f"There is no tab {number}; there are {len(self.tabs)}.")
        page = self.tabs[number - 1]
        if self.attached and page not in self._own:
            raise ToolFailed("This tab belongs to the person. Leave it open.")
        await page.close()

    async def check_address(self, url: str) -> None:
        """Raise `ToolFailed` for an address that may not be opened."""
        parts = urlsplit(url)
        if url == "about:blank":
            return
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ToolFailed("Only http and https addresses can be opened.")
        await self._check_host(url)

    async def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        self._guard.check(HttpAddress(parts.scheme, host, port))
        try:
            await self._guard.resolve(host, port)
        except (OSError, UnicodeError):
            return  # the browser reports it

    @asynccontextmanager
    async def acting(self, *, accept: bool = False, text: str = "") -> AsyncIterator[None]:
        """Run an action of the agent within the block; afterwards, wait until the page has reacted.

        ``accept`` and ``text`` are the answer to the dialogs that it opens.
        """
        self._pending.clear()
        self.dialogs.seen.clear()
        self.dialogs.prepare(accept=accept, text=text)
        try:
            yield
            await self._settle()
        finally:
            self.dialogs.prepare()

    async def _settle(self) -> None:
        """Wait for the requests that an action has started, a few seconds at most."""
        with suppress(PlaywrightError, TimeoutError, ToolFailed):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._wait_for_frame()
                while self._pending:
                    self._changed.clear()
                    await self._changed.wait()
                await self.page.wait_for_load_state("domcontentloaded")
                await self._wait_for_frame()

    async def _wait_for_frame(self) -> None:
        with suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(_FRAME_SECONDS):
                await self.page.evaluate(_NEXT_FRAME)

    async def save_downloads(self, folder: Path) -> list[Path]:
        """Save finished downloads below a folder, under names that are not used yet."""
        saved = []
        while self._downloads:
            download = self._downloads.pop(0)
            try:
                async with asyncio.timeout(self.timeout):
                    source = await download.path()
                    saved.append(await asyncio.to_thread(_move_in, Path(source), folder, download.suggested_filename))
            except TimeoutError:
                self._downloads.insert(0, download)
                break
            except PlaywrightError as error:
                log.warning("a download failed: %s", error)
        return saved

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a new tab or download, ``seconds`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    @property
    def has_downloads(self) -> bool:
        """Return whether a download has begun and isn't saved yet."""
        return bool(self._downloads)

    async def close(self) -> None:
        """Disconnect; the browser and its tabs stay."""
        with suppress(PlaywrightError):
            await self._browser.close()

    async def _open_own(self) -> Page:
        page = await self.context.new_page()
        self._own.append(page)
        return page

    async def _switch(self, page: Page) -> None:
        if self.attached and page not in self._guarded:
            self._guarded.add(page)
            await page.route("**/*", self._check_route)
            await page.route_web_socket("**/*", self._check_socket)
            await self._check_redirects(page)
        self._page = page
        with suppress(PlaywrightError):
            await page.bring_to_front()

    async def _check_route(self, route: Route) -> None:
        try:
            if urlsplit(route.request.url).scheme not in _INSIDE:
                await self.check_address(route.request.url)
            await route.continue_()
        except ToolFailed:
            self.blocked.append(urlsplit(route.request.url).netloc)
            await route.abort(_BLOCKED.lower())

    async def _check_redirects(self, page: Page) -> None:
        """Check every step of a redirect too, which Playwright's routes don't see."""
        session = await self.context.new_cdp_session(page)

        async def check(event: dict[str, Any]) -> None:
            url, paused = event["request"]["url"], {"requestId": event["requestId"]}
            with suppress(PlaywrightError):
                try:
                    if urlsplit(url).scheme not in _INSIDE:
                        await self.check_address(url)
                except ToolFailed:
                    self.blocked.append(urlsplit(url).netloc)
                    await session.send("Fetch.failRequest", {**paused, "errorReason": _BLOCKED})
                else:
                    await session.send("Fetch.continueRequest", paused)

        session.on("Fetch.requestPaused", check)
        await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def _check_socket(self, route: WebSocketRoute) -> None:
        try:
            await self._check_host(route.url)
            route.connect_to_server()
        except ToolFailed:
            self.blocked.append(urlsplit(route.url).netloc)
            await route.close()

    def _add_page(self, page: Page) -> None:
        self._watch(page)
        self._changed.set()
        if not self.attached:
            self._page = page

    def _watch(self, page: Page) -> None:
        page.on("dialog", self._on_dialog)
        if self.attached and page not in self._own:
            return
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.console.append(f"error: {str(error)[:_LONGEST_MESSAGE]}"))
        page.on("download", self._on_download)
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_request_end)
        page.on("requestfailed", self._on_request_end)

    async def _on_dialog(self, dialog: Dialog) -> None:
        await self.dialogs.handle(dialog, is_ours=not self.attached or dialog.page in self._guarded)

    def _on_console(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text[:_LONGEST_MESSAGE]}")

    def _on_download(self, download: Download) -> None:
        self._downloads.append(download)
        self._changed.set()

    def _on_request(self, request: Request) -> None:
        if request.resource_type in _AWAITED:
            self._pending.add(request)

    def _on_request_end(self, request: Request) -> None:
        self._pending.discard(request)
        self._changed.set()


async def convert_errors(action: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an action; errors of Playwright become `ToolFailed` in a sentence."""
    try:
        return await action()
    except PlaywrightError as error:
        raise ToolFailed(describe_error(error)) from error


def describe_error(error: PlaywrightError) -> str:
    """Return the first sentence of an error, without its call log."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    first = lines[0].partition(": ")[2] if lines and lines[0].split(":")[0].count(".") == 1 else "".join(lines[:1])
    why = next(
        (line.lstrip("- ") for line in lines if "intercepts pointer events" in line or "not enabled" in line), ""
    )
    if isinstance(error, PlaywrightTimeout):
        first = f"It couldn't be done in time ({first.rstrip('.')}); the element may be gone, hidden or covered"
    return ". ".join(filter(None, (first.rstrip("."), why))) or "The browser reported an error"


def _move_in(source: Path, folder: Path, name: str) -> Path:
    """Move a downloaded file into a folder, never over another one or out of the folder."""
    import shutil  # noqa: PLC0415 (loaded with the first download)

    folder.mkdir(parents=True, exist_ok=True)
    safe = Path(name.replace("\0", "").replace("\\", "/")).name.lstrip(".") or "download"
    stem, suffix = Path(safe).stem[:100], Path(safe).suffix[:20]
    for number in range(1, 10_000):
        target = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            target.touch(exist_ok=False)
        except FileExistsError:
            continue
        return Path(shutil.move(source, target))
    raise ToolFailed(f"{folder} has too many files named {safe}.")
