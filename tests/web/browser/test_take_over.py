"""The page on which a person takes the agent's browser over."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from msgspec import structs
from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted, hosted
from tests.tools.browser.agent_browser import HEADLESS_SHELL
from tests.tools.browser.website import serving
from tests.web.browser.pages import needs_chromium, signed_in

from talaria.contracts.stores.sessions import NewSession
from talaria.testing.model_server import ModelServer

pytestmark = needs_chromium


@pytest_asyncio.fixture(loop_scope="session")
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path, model, f'[browser]\nexecutable_path = "{HEADLESS_SHELL}"\n') as server:
        yield server


async def test_person_takes_over_types_and_hands_back(browser: Browser, host: Hosted) -> None:
    browsers, store = host.application.browsers, host.application.store
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="web", title="Shopping")))
    with serving() as site:
        url = site.page("/login", "<input autofocus oninput='document.title=value'>")
        opened = browsers.session(session.id, guest=True)
        try:
            connection = await opened.connect()
            opened.folder.write_options(structs.replace(opened.folder.read_options(), allowed_hosts=(site.host,)))
            await connection.page.goto(url)
            await opened.take_snapshot()
            async with signed_in(browser, host, path="/browser") as watched:
                page = watched.page
                await page.get_by_role("link", name="Shopping").click()
                await expect(page.get_by_text("/login")).to_have_count(2)
                await watched.assert_accessible()
                await page.get_by_role("button", name="Take over").click()
                await page.get_by_label("Text to type into the page").fill("by hand")
                await connection.page.locator("input").focus()
                await page.get_by_role("button", name="Type").click()
                await expect(connection.page).to_have_title("by hand")
                assert opened.folder.handover.is_with_person
                await page.get_by_role("button", name="Hand back").click()
                await expect(page.get_by_role("button", name="Take over")).to_be_visible()
                assert not opened.folder.handover.is_with_person
                watched.assert_clean()
                await opened.folder.end()
                await expect(page.get_by_text("This browser isn't running.")).to_be_visible()
        finally:
            browsers.end_session(session.id)
