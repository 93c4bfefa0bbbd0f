"""One Chromium and one website for the tests that a worker runs in a row; they share the event loop of the driver."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.shared_fixtures import finish_fixtures
from tests.tools.browser.agent_browser import CHROMIUM, AgentBrowser
from tests.tools.browser.website import Website, serving

from talaria.settings.sections.tools import BrowserSettings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close Chromium and its driver after the last test in a row."""
    try:
        return (yield)
    finally:
        finish_fixtures(item, nextitem, Path(__file__).parent, "shared_agent")


@pytest.fixture(scope="session")
def site() -> Iterator[Website]:
    with serving() as site:
        yield site


@pytest.fixture(scope="session")
def other_site() -> Iterator[Website]:
    """A second website, which pages may not reach."""
    with serving() as site:
        yield site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_agent(tmp_path_factory: pytest.TempPathFactory, site: Website) -> AsyncIterator[AgentBrowser]:
    if not CHROMIUM:
        pytest.skip("Chromium is not installed; scripts/system-packages.sh installs it.")
    settings = BrowserSettings(allowed_hosts=(site.host,), timeout_seconds=30)
    agent = AgentBrowser(tmp_path_factory.mktemp("browsers"), tmp_path_factory.mktemp("work"), settings)
    try:
        yield agent
    finally:
        await agent.close()


@pytest_asyncio.fixture(loop_scope="session")
async def agent(shared_agent: AgentBrowser) -> AgentBrowser:
    """The shared browser, with one empty tab."""
    connection = await shared_agent.browser.connect()
    for page in connection.tabs[1:]:
        await page.close()
    return shared_agent


@pytest.fixture
def new_settings(site: Website) -> BrowserSettings:
    return BrowserSettings(allowed_hosts=(site.host,), timeout_seconds=30)


@pytest_asyncio.fixture(loop_scope="session")
async def new_agent(tmp_path: Path, new_settings: BrowserSettings) -> AsyncIterator[AgentBrowser]:
    """A session with a browser of its own."""
    agent = AgentBrowser(tmp_path / "browsers", tmp_path / "work", new_settings)
    try:
        yield agent
    finally:
        await agent.close()
