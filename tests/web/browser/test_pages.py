"""Basic use of the web app in a real browser, in light and dark, on a desktop and on a phone."""

import re

import pytest
from playwright.async_api import Browser, ViewportSize, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import DESKTOP, PHONE, needs_chromium, signed_in, watch

from talaria.access.browsers import create_code, read_browsers, revoke_browser
from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium

REPLY = """Here is how it works.

## Steps

1. Read the *file*
2. Count the **words** with `wc`

```python
def count(path: str) -> int:
    return len(open(path).read().split())  # words
```

| File | Words |
| --- | ---: |
| a.txt | 1,024 |

> Quoted text with a [link](https://example.org).
"""
SIZES = [pytest.param(DESKTOP, False, id="desk-light"), pytest.param(PHONE, True, id="phone-dark")]


@pytest.mark.parametrize(("viewport", "dark"), SIZES)
async def test_formatted_reply_is_shown_and_accessible(
    browser: Browser, host: Hosted, model: ModelServer, viewport: ViewportSize, dark: bool
) -> None:
    model.otherwise(Say(REPLY, pause=0.002))
    async with signed_in(browser, host, viewport=viewport, dark=dark, installs=dark) as watched:
        await watched.assert_accessible()
        await watched.say("Count the words, please.")
        page = watched.page
        await expect(page.get_by_role("cell", name="1,024")).to_be_visible()
        await expect(page.locator(".hl-kwd").first).to_be_visible()
        await expect(page.locator(".reply").get_by_role("heading")).to_have_text("Steps")
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await page.get_by_role("button", name="Copy code").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        await watched.assert_accessible()
        await page.reload()
        await expect(page.get_by_role("cell", name="1,024")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        watched.assert_clean()


async def test_approval_needs_a_deliberate_click(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.script(Say("Let me clean up.", calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("I left it alone."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Clean up")
        asked = page.get_by_role("region", name="Approval needed")
        await expect(asked).to_contain_text("rm -rf *")
        await page.get_by_label("Message", exact=True).press("Enter")
        always = asked.get_by_role("button", name="Always allow")
        await expect(always).to_be_enabled()
        await watched.assert_accessible()
        await always.click()
        await expect(asked.get_by_role("button", name="Click again")).to_be_visible()
        await page.keyboard.press("Alt+4")
        await expect(asked).to_be_hidden()
        await expect(page.locator(".reply").last).to_contain_text("I left it alone.")
        await watched.turn_stored()
        tool = page.locator("details.tool")
        await tool.locator("summary").click()
        await expect(tool.locator("pre").first).to_contain_text("rm -rf *")
        watched.assert_clean()


async def test_chat_is_used_by_keyboard_alone(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("word " * 400, pause=0.02))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await expect(box).to_be_focused()
        await page.keyboard.type("/he")
        await expect(page.locator("#offers").get_by_role("option").first).to_contain_text("/help")
        await page.keyboard.press("Tab")
        await expect(box).to_have_value("/help ")
        await page.keyboard.press("Enter")
        await expect(page.locator(".note").first).to_contain_text("/model")
        await page.keyboard.type("Tell me a story")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("a long one")
        await page.keyboard.press("Enter")
        await expect(page.locator(".bubble")).to_have_text("Tell me a story\na long one")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await page.keyboard.type("and then?")
        await page.keyboard.press("Enter")
        await expect(page.locator(".queued")).to_contain_text("and then?")
        await page.keyboard.press("Escape")  # the queued message is next
        await expect(page.locator(".queued")).to_have_count(0)
        await expect(page.locator(".bubble")).to_have_text(["Tell me a story\na long one", "and then?"])
        await page.keyboard.press("Escape")
        await expect(page.locator(".notice")).to_contain_text("Stopped")
        await expect(page.locator(".bubble")).to_have_text(["Tell me a story\na long one", "and then?"])
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("dialog")).to_be_visible()  # it is loaded when it is first opened
        await page.keyboard.type("manage")
        await page.keyboard.press("Escape")
        await expect(box).to_be_focused()
        watched.assert_clean()


async def test_a_draft_survives_a_reload_and_the_code_is_not_stored(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        assert "code" not in watched.page.url
        assert "code" not in str(await watched.page.evaluate("JSON.stringify(localStorage)"))
        box = watched.page.get_by_label("Message", exact=True)
        await box.fill("Half a thought")
        await watched.page.reload()
        await expect(box).to_have_value("Half a thought")
        watched.assert_clean()


async def test_conversations_are_renamed_archived_and_deleted(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.otherwise(Say("Yes, of course."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Plan my holidays")
        await expect(page.locator(".reply")).to_have_count(1)
        row = page.locator(".row").first
        await expect(row).to_contain_text("Yes, of course")
        await row.get_by_role("button", name="Actions").click()
        await page.get_by_role("button", name="Rename").click()
        await page.get_by_label("Title").fill("Holidays")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Holidays")
        await page.get_by_label("Search conversations").fill("holidays")
        await expect(page.get_by_role("navigation", name="Search results")).to_contain_text("Holidays")
        await watched.assert_accessible()
        await page.get_by_label("Search conversations").fill("")
        await row.get_by_role("button", name="Actions").click()
        await page.locator(".menu").get_by_role("button", name="Archive").click()
        await expect(page.locator(".row")).to_have_count(0)
        await page.locator(".sidebar-foot").get_by_role("button", name="Archive").click()
        await expect(page.locator(".row")).to_have_count(1)
        await row.get_by_role("button", name="Actions").click()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Delete for good?").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")
        await expect(page.locator(".row")).to_have_count(0)
        watched.assert_clean()


async def test_tabs_share_one_stream(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Hello from afar. " * 3, pause=0.01))
    async with signed_in(browser, host) as watched:
        await watched.say("Hi")
        await watched.page.wait_for_url(re.compile("/c/"))
        tabs = 6  # and the first one: a browser has six connections to a server
        others = [watch(await watched.context.new_page(), watched.context, host.url) for _ in range(tabs)]
        for other in others:
            await other.page.goto(watched.page.url)
            await expect(other.page.locator(".reply")).to_contain_text("Hello from afar.")
        await watched.page.close()  # the tab that owns the stream
        last = others[-1].page
        await last.get_by_label("Message", exact=True).fill("Again")
        await last.get_by_role("button", name="Send").click()
        for other in others:
            await expect(other.page.locator(".reply")).to_have_count(2)
            other.assert_clean()


async def test_page_asks_for_a_code_after_its_browser_was_signed_out_elsewhere(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.get_by_role("link", name="Manage").click()
        await page.get_by_role("link", name="Browsers").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Signed-in browsers")
        await expect(page.locator(".card")).to_contain_text("This one")
        await watched.assert_accessible()
        (known,) = (await host.application.store.read(read_browsers)).values()
        await host.application.store.write(lambda tx: revoke_browser(tx, known.id))
        await expect(page.get_by_label("Code", exact=True)).to_be_visible()
        await watched.assert_accessible()
        code = await host.application.store.write(create_code)
        await page.get_by_label("Code", exact=True).fill(code.lower())
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("link", name="New", exact=True)).to_be_visible()
        assert watched.foreign == []
