"""Tool calls and reasoning that the user expands while a turn runs, in a real browser."""

import asyncio

from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import needs_chromium, signed_in

from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium


async def test_expanded_entries_stay_expanded_when_the_turn_is_stored(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    finish = asyncio.Event()
    calls = [Ask("terminal", {"command": "echo first"}), Ask("terminal", {"command": "echo second"})]
    model.script(Say(calls=calls, reasoning="Two commands."), Say("It is done.", hold=(2, finish)))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Go")
        await expect(page.locator(".reply")).to_have_text("It is")
        await page.locator("details.reasoning summary").click()
        await page.locator("details.tool summary").last.click()
        expanded = page.locator(".fold-body")
        await expect(expanded).to_contain_text(["Two commands.", "second"])
        finish.set()
        await watched.turn_stored()
        await expect(expanded).to_contain_text(["Two commands.", "second"])
        await expect(page.locator("details.tool").first).not_to_have_attribute("open", "")
        watched.assert_clean()
