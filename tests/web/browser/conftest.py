"""One Chromium and one driver for all tests of a worker; each test gets contexts and a server of its own.

The driver belongs to an event loop, so these tests share one, and their fixtures with them.
"""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect
from tests.api.in_process_server import Hosted, hosted
from tests.web.browser.pages import CHROMIUM
from tests.web.conftest import PEOPLE
from tests.web.web_client import web_client

from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT, until

_MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
_MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
_PLAIN = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
_OPTIONS = (*_PLAIN, *_MICROPHONE, _MOUSE)

expect.set_options(timeout=LIMIT * 1000)


@pytest.fixture(scope="session")
def chromium_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run Chromium, and yield its folder."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; scripts/system-packages.sh installs it.")
    folder = tmp_path_factory.mktemp("chromium")
    command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield folder
        finally:
            process.terminate()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_folder: Path) -> AsyncIterator[Browser]:
    port_file = chromium_folder / "DevToolsActivePort"
    port = await until(lambda: port_file.exists() and port_file.read_text().partition("\n")[0])
    async with async_playwright() as playwright:
        found = await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        try:
            yield found
        finally:
            await found.close()


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
