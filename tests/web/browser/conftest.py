"""One Chromium for all tests of a worker; each test gets contexts of its own in it."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.web.browser.pages import CHROMIUM

from talaria.testing.wait import LIMIT, until

_MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0", _MOUSE)

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


@pytest.fixture
async def browser(chromium_folder: Path) -> AsyncIterator[Browser]:
    port_file = chromium_folder / "DevToolsActivePort"
    port = await until(lambda: port_file.exists() and port_file.read_text().partition("\n")[0])
    async with async_playwright() as playwright:
        found = await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        try:
            yield found
        finally:
            await found.close()
