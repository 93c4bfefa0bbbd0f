"""A browser for tests: Debian's Chromium under Playwright, which records everything that must not happen."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import axe_playwright_python
import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, ViewportSize, expect
from tests.api.in_process_server import Hosted
from tests.api.server_process import Server, serving
from tests.app.program import Program

from talaria.access.browsers import create_code
from talaria.testing.wait import LIMIT

WHOLE_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM = shutil.which("chromium-headless-shell") or WHOLE_CHROMIUM  # the shell takes half the CPU time
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)

_REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation", event =>
    console.error(`violation of ${event.violatedDirective}: ${event.blockedURI} ${event.sample}`))"""
_INSTALL_NOTHING = "ServiceWorkerContainer.prototype.register = () => new Promise(() => null)"
_VISIT = """path => {
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
}"""
_LEAVE = """() => {
    localStorage.clear();
    location.replace("about:blank");  // from here, as an address typed by a person is loaded in another renderer
}"""
_FIND_VIOLATIONS = """async options => (await axe.run(options)).violations
    .map(one => [one.id, one.nodes.map(node => node.html)])"""

_desktop_pages: WeakKeyDictionary[Browser, Page] = WeakKeyDictionary()  # those that no test is using

needs_chromium = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; scripts/system-packages.sh installs it."),
    pytest.mark.asyncio(loop_scope="session"),  # as the driver of the browser
]


@dataclass
class WatchedPage:
    """A page, with what went wrong on it: errors, violated policies, requests to other servers.

    ``server`` is the process that serves it, if that is one of its own.
    """

    page: Page
    context: BrowserContext
    url: str
    server: Server | None = None
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Record from now on."""
        self.page.on("console", self._add_message)
        self.page.on("pageerror", self._add_error)
        self.page.on("request", self._add_request)

    def stop(self) -> None:
        """Record nothing more."""
        self.page.remove_listener("console", self._add_message)
        self.page.remove_listener("pageerror", self._add_error)
        self.page.remove_listener("request", self._add_request)

    def _add_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} {message.location['url']}")

    def _add_error(self, error: Error) -> None:
        self.errors.append(str(error))

    def _add_request(self, sent: Request) -> None:
        if not sent.url.removeprefix("blob:").startswith(self.url):
            self.foreign.append(sent.url)

    async def open(self, path: str = "/") -> None:
        await self.page.goto(f"{self.url}{path}")

    async def visit(self, path: str) -> None:
        """Show another page of the app without loading it again, as the browser's back button does."""
        await self.page.evaluate(_VISIT, path)

    async def say(self, text: str) -> None:
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.page.get_by_role("button", name="Send").click()

    async def turn_stored(self) -> None:
        """Wait until the transcript has replaced the turn: entries are drawn again then."""
        await expect(self.page.get_by_role("button", name="Retry")).to_be_visible()

    async def assert_accessible(self, *, own_colours: bool = True) -> None:
        """Check the page with axe: nothing may be wrong. Without ``own_colours`` the browser chooses them."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text())
        options = {"rules": {"color-contrast": {"enabled": own_colours}}, "resultTypes": ["violations"]}
        found = await self.page.evaluate(_FIND_VIOLATIONS, options)
        assert found == [], found

    async def assert_fits(self, *viewports: ViewportSize) -> None:
        """Check that nothing is wider than the screen, at each of these sizes; the last one stays."""
        for viewport in viewports:
            await self.page.set_viewport_size(viewport)
            assert await self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), viewport

    def assert_clean(self) -> None:
        assert self.errors == [], self.errors
        assert self.foreign == [], self.foreign


@asynccontextmanager
async def served(program: Program, browser: Browser, *, installs: bool = False) -> AsyncIterator[WatchedPage]:
    """Serve the web app in a process of its own, and open it signed in; ``installs`` as for `signed_in`."""
    (program.home / "work").mkdir(exist_ok=True)
    async with serving(program) as server:
        link = (await asyncio.to_thread(program.run, "web", "--no-open")).out.strip()
        context = await browser.new_context(viewport=DESKTOP, reduced_motion="reduce")
        context.set_default_timeout(LIMIT * 1000)
        try:
            if not installs:
                await context.add_init_script(_INSTALL_NOTHING)
            watched = watch(await context.new_page(), context, server.url, server)
            await watched.page.goto(link)
            await watched.page.get_by_role("heading", name="New conversation").wait_for()
            yield watched
        finally:
            await context.close()


async def assert_equals_transcript(page: Page) -> None:
    """Check that the text on the page is that of the transcript, each reply once, when no turn is running."""
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    session = page.url.rpartition("/")[2]
    stored = await page.evaluate(f"fetch('/web/sessions/{session}/messages').then(reply => reply.json())")
    texts = [
        part["text"].strip()
        for message in stored["messages"]
        for part in message["parts"]
        if part["type"] == "text" and message["role"] == "assistant"
    ]
    await expect(page.locator(".reply .markdown")).to_have_text(texts)


def watch(page: Page, context: BrowserContext, url: str, server: Server | None = None) -> WatchedPage:
    """Record console errors, violations of the content policy and of trusted types, and requests to other servers."""
    watched = WatchedPage(page, context, url, server)
    watched.start()
    return watched


@asynccontextmanager
async def signed_in(
    browser: Browser,
    host: Hosted,
    *,
    viewport: ViewportSize = DESKTOP,
    dark: bool = False,
    person: str = "",
    path: str = "/",
    installs: bool = False,
) -> AsyncIterator[WatchedPage]:
    """Open a page of the app, signed in with a code, without cookies and stored data of others.

    ``installs`` is whether it gets the service worker, which loads and stores all files of the app once more.
    """
    is_new = installs or viewport == PHONE
    opened = _new_page(browser, viewport, dark=dark, installs=installs) if is_new else _desktop_page(browser, dark=dark)
    async with opened as page:
        watched = watch(page, page.context, host.url)
        code = await host.application.store.write(lambda tx: create_code(tx, person=person))
        await watched.open(f"{path}#code={code}")
        shown = page.get_by_role("heading", name="New conversation") if path == "/" else page.locator(".app")
        await shown.wait_for()
        yield watched
        watched.stop()


@asynccontextmanager
async def _new_page(browser: Browser, viewport: ViewportSize, *, dark: bool, installs: bool) -> AsyncIterator[Page]:
    """Yield the page of a new context."""
    context = await _open_context(browser, viewport, dark=dark, installs=installs)
    try:
        yield await context.new_page()
    finally:
        await context.close()


@asynccontextmanager
async def _desktop_page(browser: Browser, *, dark: bool) -> AsyncIterator[Page]:
    """Yield the page of an earlier test, or a new one: a renderer in use loads the app in half the CPU time.

    Each server has a port of its own, so the app and what it stores are those of this test. A page that a test has
    closed, or with which it has failed, isn't used again.
    """
    page = _desktop_pages.pop(browser, None)
    if page is None:
        page = await (await _open_context(browser, DESKTOP, dark=False, installs=False)).new_page()
    is_left = False
    try:
        await page.emulate_media(
            color_scheme="dark" if dark else "light", reduced_motion="reduce", forced_colors="none"
        )
        yield page
        is_left = await _leave_server(page)
    finally:
        if is_left:
            _desktop_pages[browser] = page
        else:
            await page.context.close()


async def _open_context(browser: Browser, viewport: ViewportSize, *, dark: bool, installs: bool) -> BrowserContext:
    context = await browser.new_context(
        viewport=viewport,
        color_scheme="dark" if dark else "light",
        has_touch=viewport == PHONE,
        reduced_motion="reduce",
    )
    context.set_default_timeout(LIMIT * 1000)
    await context.add_init_script(_REPORT_VIOLATIONS)
    if not installs:
        await context.add_init_script(_INSTALL_NOTHING)
    return context


async def _leave_server(page: Page) -> bool:
    """Undo what a test has changed in the browser, and end the page's requests; return whether it is still open."""
    if page.is_closed():
        return False
    for other in page.context.pages:
        if other is not page:
            await other.close()
    await page.unroute_all(behavior="ignoreErrors")
    await page.evaluate(_LEAVE)
    await page.wait_for_url("about:blank")
    await page.context.clear_cookies()
    await page.set_viewport_size(DESKTOP)
    await page.mouse.move(-1, -1)
    return True
