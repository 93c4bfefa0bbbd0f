"""The person's own browser: the agent uses it behind the network guard and never closes it."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.browser.agent_browser import CHROMIUM, AgentBrowser, needs_chromium
from tests.tools.browser.website import Website

from talaria.core.errors import ToolFailed
from talaria.settings.sections.tools import BrowserSettings
from talaria.testing.wait import until

pytestmark = needs_chromium
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")


@pytest.fixture
def own_browser(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    folder = tmp_path / "own"
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, folder
        finally:
            process.terminate()


async def test_own_browser_is_used_and_stays_open(
    tmp_path: Path, own_browser: tuple[subprocess.Popen[bytes], Path], site: Website, other_site: Website
) -> None:
    process, folder = own_browser
    port_file = folder / "DevToolsActivePort"
    port = await until(lambda: port_file.exists() and port_file.read_text().partition("\n")[0])
    settings = BrowserSettings(attach=f"http://127.0.0.1:{port}", allowed_hosts=(site.host,), timeout_seconds=30)
    async with AgentBrowser(tmp_path / "browsers", tmp_path / "work", settings) as agent:
        assert "Hello" in await agent.open(site.page("/hello", f"<h1>Hello</h1><img src='{other_site.url('/x')}'>"))
        connection = await agent.browser.connect()
        assert len(connection.tabs) == 2
        site.redirects["/out"] = other_site.url("/secret")
        with pytest.raises(
            ToolFailed, match=rf"leads to {other_site.host}, which is not a public address; it is blocked"
        ):
            await agent.open(site.url("/out"))
        # Chromium loads a page again by itself after most other errors: that second load would not be checked.
        await connection.page.wait_for_function("document.body.innerText.includes('ERR_BLOCKED_BY_CLIENT')")
        with pytest.raises(ToolFailed, match="belongs to the person"):
            await agent.read("close_tab", tab=1)
    await asyncio.to_thread(agent.browser.folder.end_soon, remove=True)
    assert process.poll() is None
    assert other_site.seen == []


async def test_missing_own_browser_is_reported(tmp_path: Path) -> None:
    settings = BrowserSettings(attach="http://127.0.0.1:9")
    async with AgentBrowser(tmp_path / "browsers", tmp_path / "work", settings) as agent:
        with pytest.raises(ToolFailed, match="remote-debugging-port"):
            await agent.browser.connect()
