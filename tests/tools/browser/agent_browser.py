"""The browser tools of one session, called as an agent would."""

import re
import shutil
from pathlib import Path
from typing import Self

import pytest
from tests.tools.tool_calls import ScriptedPerson, call_from

from talaria.contracts.tool import Call, ToolOutput
from talaria.core.chromium import find_executable
from talaria.core.ids import SessionId, new_id
from talaria.settings.environment import process_environment
from talaria.settings.sections.tools import BrowserSettings
from talaria.tools.browser.actions import PageActions
from talaria.tools.browser.arguments import BrowserActArguments, BrowserArguments
from talaria.tools.browser.registry import BrowserRegistry
from talaria.tools.browser.tool import BrowserAct, BrowserPages

CHROMIUM = find_executable("", process_environment())
# Needs a fifth of Chromium's CPU time to start, for tests that need no page; empty if it isn't installed. The
# program itself: the one on the PATH is a script that doesn't end with it.
HEADLESS_SHELL = find_executable("/usr/lib/chromium/chromium-headless-shell", process_environment())
LINK = "http://127.0.0.1:8765/browser/1"

needs_chromium = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed; scripts/system-packages.sh installs it."),
    pytest.mark.asyncio(loop_scope="session"),  # as the driver of the browser
    pytest.mark.slow,
]


class AgentBrowser:
    """A session with the browser tools; ``folder`` is its workspace.

    Agents with the same ``registry`` share its driver of Playwright.
    """

    def __init__(
        self,
        root: Path,
        folder: Path,
        settings: BrowserSettings,
        *,
        session_id: str = "",
        registry: BrowserRegistry | None = None,
    ) -> None:
        self.root = root
        self.folder = folder
        self.settings = settings
        self.session_id = SessionId(session_id or new_id())
        self.registry = registry or BrowserRegistry(root, process_environment())
        self.person = ScriptedPerson()
        folder.mkdir(exist_ok=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.registry.close()

    @property
    def browser(self):  # type: ignore[no-untyped-def] # inferred
        return self.registry.get_browser(self.session_id, lambda: self.settings, shares_cookies=True)

    def tools(self) -> tuple[BrowserPages, BrowserAct]:
        def open_actions(call: Call) -> PageActions:
            return PageActions(self.browser, call, self.folder / "pictures", LINK)

        browser = self.browser
        return BrowserPages(open_actions), BrowserAct(open_actions, lambda: browser.address, browser.describe)

    async def look(self, action: str, **arguments: object) -> ToolOutput:
        reader, _ = self.tools()
        return await reader.run(BrowserArguments(action, **arguments), self._call())  # type: ignore[arg-type]

    async def read(self, action: str, **arguments: object) -> str:
        return (await self.look(action, **arguments)).text

    async def open(self, url: str) -> str:
        return await self.read("open", url=url)

    async def act(self, action: str, ref: str = "", text: str = "", **arguments: bool) -> str:
        _, actor = self.tools()
        return (await actor.run(BrowserActArguments(action, ref, text, **arguments), self._call())).text  # type: ignore[arg-type]

    async def close(self) -> None:
        await self.browser.folder.end(remove=True)
        await self.registry.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _call(self) -> Call:
        return call_from(self.folder, session_id=self.session_id, person=self.person)


def find_ref(text: str, what: str) -> str:
    """Return the reference of the first element that a snapshot describes so."""
    found = re.search(rf"{re.escape(what)}[^\n]*? \[ref=(\w+)\]", text)
    assert found, f"{what} is not in:\n{text}"
    return found[1]
