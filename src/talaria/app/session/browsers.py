"""Browsers of the sessions of a profile; Playwright is imported when the first one is used."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import structs

from talaria.contracts.store import Store
from talaria.contracts.tool import Call, Tool
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.browser.tool import BrowserAct, BrowserPages

if TYPE_CHECKING:  # loaded with the first browser
    from talaria.contracts.browser import BrowserOptions, BrowserStatus, LiveView
    from talaria.tools.browser.actions import PageActions
    from talaria.tools.browser.registry import BrowserRegistry
    from talaria.tools.browser.session_browser import SessionBrowser

BROWSER_TOOLS: tuple[type[Tool], ...] = (BrowserPages, BrowserAct)
log = logging.getLogger(__name__)


def has_browser(browsers: "ProfileBrowsers | None") -> bool:
    """Return whether the tools can be used here."""
    return browsers is not None and browsers.is_available


class ProfileBrowsers:
    """Implementation of `SessionBrowsers` for one profile."""

    def __init__(self, profile: Profile, settings: Callable[[], Settings], environment: Mapping[str, str]) -> None:
        self._root = profile.browsers_folder
        self._media = profile.media_folder
        self._settings = settings
        self._environment = environment
        self._registry: BrowserRegistry | None = None

    @property
    def is_available(self) -> bool:
        """Return whether the extra is installed, and a browser is there or configured to be attached to."""
        from talaria.core.chromium import find_executable, has_playwright  # noqa: PLC0415 (where enabled)

        options = self._settings().browser
        return has_playwright() and bool(options.attach or find_executable(options.executable_path, self._environment))

    def session(self, session_id: SessionId, *, guest: bool) -> "SessionBrowser":
        """Return the browser of a session; guests get neither the owner's cookies nor their own browser."""

        def build_options() -> "BrowserOptions":
            found = self._settings().browser
            return structs.replace(found, attach="") if guest else found

        return self._open_registry().get_browser(session_id, build_options, shares_cookies=not guest)

    def make_tool(self, kind: type[Tool], session_id: SessionId, closing: AsyncExitStack, *, guest: bool) -> Tool:
        """Return a browser tool of a session; ``closing`` disconnects from the browser, which stays."""
        browser = self.session(session_id, guest=guest)
        pictures = self._media / session_id / "browser"
        closing.push_async_callback(self.release, session_id)

        def open_actions(call: Call) -> "PageActions":
            from talaria.tools.browser.actions import PageActions  # noqa: PLC0415 (loaded with the first call)

            return PageActions(browser, call, pictures, self.link(session_id))

        if kind is BrowserPages:
            return BrowserPages(open_actions)
        return BrowserAct(open_actions, lambda: browser.address, browser.describe)

    def link(self, session_id: SessionId) -> str:
        """Return the address of the page on which the person can take over."""
        api = self._settings().api
        host = "127.0.0.1" if api.host in ("0.0.0.0", "::", "") else api.host  # noqa: S104 (compared)
        return f"http://{host}:{api.port}/browser/{session_id}"

    async def release(self, session_id: SessionId) -> None:
        """Disconnect from the browser of a session, which stays."""
        if self._registry is not None:
            await self._registry.release(session_id)

    def end_session(self, session_id: SessionId) -> None:
        """End the browser of an ended session and delete its profile, without waiting."""
        if not (self._root / session_id).exists():
            return
        from talaria.tools.browser.session_folder import end_browser  # noqa: PLC0415 (loaded for a browser)

        end_browser(self._root, session_id)
        if self._registry is not None:
            self._registry.forget(session_id)

    async def end_orphans(self, store: Store) -> None:
        """End the browsers of deleted sessions."""
        if not self._root.exists():
            return
        from talaria.tools.browser.session_folder import end_orphans  # noqa: PLC0415 (loaded for a browser)

        listed = [one.session_id for one in self.list()]
        known = await store.read(lambda tx: {one for one in listed if tx.sessions.get(one) is not None})
        for session_id in end_orphans(self._root, known):
            log.info("ended the browser of the deleted session %s", session_id)

    async def close(self) -> None:
        """Disconnect from all browsers."""
        if self._registry is not None:
            await self._registry.close()

    def list(self) -> "Sequence[BrowserStatus]":
        """Return all browsers, used last first."""
        from talaria.tools.browser.session_folder import list_browsers  # noqa: PLC0415 (loaded for a browser)

        is_attached = bool(self._settings().browser.attach)
        return [structs.replace(one, attached=is_attached) for one in list_browsers(self._root)]

    def find(self, session_id: SessionId) -> "BrowserStatus | None":
        """Return the browser of a session; ``None`` if it has none."""
        return next((one for one in self.list() if one.session_id == session_id), None)

    def take_over(self, session_id: SessionId) -> None:
        """Give the browser to the person; the agent's actions wait until `hand_back`."""
        from talaria.tools.browser.session_folder import BrowserFolder  # noqa: PLC0415 (loaded for a browser)

        if self.find(session_id) is None:
            raise NotFound("This conversation has no browser.")
        BrowserFolder(self._root / session_id).handover.give_to_person()

    def hand_back(self, session_id: SessionId) -> None:
        """Give the browser back to the agent."""
        from talaria.tools.browser.session_folder import BrowserFolder  # noqa: PLC0415 (loaded for a browser)

        if self.find(session_id) is not None:
            BrowserFolder(self._root / session_id).handover.give_to_agent()

    async def close_browser(self, session_id: SessionId) -> bool:
        """Close the browser of a session, keeping its profile; ``False`` if it isn't running."""
        from talaria.tools.browser.session_folder import BrowserFolder  # noqa: PLC0415 (loaded for a browser)

        found = self.find(session_id)
        if found is None:
            return False
        await self.release(session_id)
        await BrowserFolder(self._root / session_id).end()
        return found.running

    async def open_view(self, session_id: SessionId) -> "LiveView":
        """Return a live view; raises `NotFound` if there is no running browser."""
        if self.find(session_id) is None:
            raise NotFound("This conversation has no browser.")
        return await self._open_registry().open_view(session_id, lambda: self._settings().browser)

    def _open_registry(self) -> "BrowserRegistry":
        if self._registry is None:
            from talaria.tools.browser.registry import BrowserRegistry  # noqa: PLC0415 (imports Playwright)

            self._registry = BrowserRegistry(self._root, self._environment)
        return self._registry
