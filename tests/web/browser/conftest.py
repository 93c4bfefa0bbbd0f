"""One Chromium and one driver for the tests that a worker runs in a row; each gets contexts and a server of its own.

The driver belongs to an event loop, so these tests share one, and their fixtures with them.
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Playwright, async_playwright, expect
from tests.api.in_process_server import Hosted, hosted
from tests.shared_fixtures import finish_fixtures
from tests.web.browser.pages import CHROMIUM, WHOLE_CHROMIUM
from tests.web.conftest import PEOPLE
from tests.web.web_client import web_client

from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT, until

_MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
_MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
_PLAIN = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
_OPTIONS = (*_PLAIN, *_MICROPHONE, _MOUSE)

expect.set_options(timeout=LIMIT * 1000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close Chromium and its driver after the last test in a row."""
    try:
        return (yield)
    finally:
        finish_fixtures(item, nextitem, Path(__file__).parent, "browser", "driver")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def driver() -> AsyncIterator[Playwright]:
    async with async_playwright() as playwright:
        yield playwright


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(driver: Playwright, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with _running(CHROMIUM, tmp_path_factory.mktemp("chromium"), driver) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def notifying_browser(driver: Playwright, tmp_path: Path) -> AsyncIterator[Browser]:
    """A full Chromium: the headless shell shows no notifications."""
    async with _running(WHOLE_CHROMIUM, tmp_path / "chromium", driver) as browser:
        yield browser


@asynccontextmanager
async def _running(program: str | None, folder: Path, driver: Playwright) -> AsyncIterator[Browser]:
    """Run Chromium with its data in a folder, and drive it."""
    if program is None:
        pytest.skip("Chromium is not installed; scripts/system-packages.sh installs it.")
    port_file = folder / "DevToolsActivePort"
    command = [program, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    try:
        port = await until(lambda: port_file.exists() and port_file.read_text().partition("\n")[0])
        browser = await driver.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        try:
            yield browser
        finally:
            await browser.close()
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # the program may be a script around Chromium
        await process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path, model, PEOPLE) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def owner(host: Hosted) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(host) as client:
        yield client
