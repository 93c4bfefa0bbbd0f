"""Every page of the registry, filled and empty: light and dark, desktop and phone, zoomed, forced colours."""

from typing import Literal

import httpx
import pytest
from playwright.async_api import Browser, ViewportSize, expect
from scripts.page_pictures import CHAT_PATHS, answer, fill, settle
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import DESKTOP, PHONE, WatchedPage, needs_chromium, signed_in

from talaria.testing.model_server import ModelServer
from talaria.testing.wait import until
from talaria.web.assets import Assets

pytestmark = needs_chromium

PAGES = [path for path in Assets().page_paths if path not in CHAT_PATHS]
SHORT = ViewportSize(width=390, height=500)  # a phone with its keyboard open
ZOOMED = ViewportSize(width=640, height=400)  # a desktop at 200 %
_PAGE_STYLES = """[...document.styleSheets].filter(one => !one.disabled)
    .map(one => one.href.split("/").at(-1)).filter(one => ["work.css", "manage.css"].includes(one))"""
_FIND_UNSERVED = """async paths => {
    const replies = await Promise.all(paths.map(path => fetch(path)));
    return paths.filter((_, index) => !replies[index].headers.get("content-type")?.startsWith("text/html"));
}"""
GROUPS = 2  # of pages, each with a server of its own


async def _check_looks(watched: WatchedPage) -> None:
    """Check a page in all looks: accessible in light and dark, never wider than the screen, no errors.

    Sizes and forced colours change no element that axe looks at, so it runs once on the desk and once on the phone.
    """
    page = watched.page
    await _check_look(watched, DESKTOP, "light")
    await watched.assert_fits(ZOOMED)
    await page.emulate_media(color_scheme="dark", forced_colors="active")
    await settle(page)
    await watched.assert_fits(DESKTOP)
    await page.emulate_media(color_scheme="dark", forced_colors="none")
    await _check_look(watched, PHONE, "dark")
    watched.assert_clean()


async def _check_look(watched: WatchedPage, viewport: ViewportSize, scheme: Literal["light", "dark"]) -> None:
    await watched.page.set_viewport_size(viewport)
    await watched.page.emulate_media(color_scheme=scheme)
    await settle(watched.page)
    await watched.assert_accessible()
    await watched.assert_fits(viewport)


@pytest.mark.parametrize("group", range(GROUPS))
async def test_pages_are_accessible_and_fit_in_all_looks(
    browser: Browser, host: Hosted, model: ModelServer, owner: httpx.AsyncClient, group: int
) -> None:
    model.answering(answer)
    async with signed_in(browser, host) as watched:
        menu = watched.page.get_by_role("navigation", name="Pages")
        for path in PAGES[group::GROUPS]:
            await watched.visit(path)
            await expect(menu.locator('[aria-current="page"]')).to_have_attribute("href", path)
            await expect(watched.page.get_by_role("heading", level=1)).not_to_be_empty()
            await _check_look(watched, DESKTOP, "light")  # empty
        await fill(owner)
        for path in PAGES[group::GROUPS]:  # a click is cheaper than another load
            await menu.locator(f'a[href="{path}"]').click()
            await expect(menu.locator('[aria-current="page"]')).to_have_attribute("href", path)
            await expect(watched.page.get_by_role("heading", level=1)).not_to_have_text("Not found")
            await _check_looks(watched)
            await watched.page.set_viewport_size(DESKTOP)


async def test_chat_is_accessible_and_fits_in_all_looks(
    browser: Browser, host: Hosted, model: ModelServer, owner: httpx.AsyncClient
) -> None:
    model.answering(answer)
    session = await fill(owner)
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _check_looks(watched)
        await watched.open(f"/c/{session}")
        await expect(page.locator(".reply")).to_have_count(2)
        for fold in await page.locator("details.fold > summary").all():
            await fold.click()
        await expect(page.locator(".diff").first).to_be_visible()
        await _check_looks(watched)
        await watched.assert_fits(SHORT)
        composer = await page.get_by_label("Message", exact=True).bounding_box()
        assert composer is not None
        assert composer["y"] + composer["height"] <= SHORT["height"]


async def test_a_guest_sees_only_their_pages(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, person="alice", installs=True) as watched:
        page = watched.page
        await page.get_by_role("link", name="Manage").click()
        await expect(page.get_by_role("heading", level=1)).not_to_be_empty()
        await page.get_by_role("navigation", name="Pages").get_by_role("link").first.wait_for()
        links = await page.get_by_role("navigation", name="Pages").get_by_role("link").all()
        shown = [path for path in PAGES if path in [await link.get_attribute("href") for link in links]]
        title = page.get_by_role("heading", level=1)
        assert "/goals" in shown
        hidden = [path for path in PAGES if path not in shown]
        assert {"/logs", "/gateway", "/doctor"} <= {*hidden}
        for path in hidden:
            await watched.visit(path)
            await expect(title).to_have_text("Not found")
            await expect(page.get_by_text("There is no such page.")).to_be_visible()
            await watched.visit(shown[0])
            await expect(title).not_to_have_text("Not found")
        for path in shown:
            await watched.visit(path)
            await expect(page.locator('[aria-current="page"]')).to_have_attribute("href", path)
            await settle(page)
            await expect(title).not_to_have_text("Not found")
        assert await page.evaluate(_FIND_UNSERVED, PAGES) == []
        await watched.open("/logs")  # by its address
        await expect(title).to_have_text("Not found")
        await watched.open(shown[-1])
        await expect(title).not_to_have_text("Not found")
        watched.assert_clean()


async def test_keyboard_reaches_every_page(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.get_by_label("Message", exact=True).blur()
        menu = page.get_by_role("navigation", name="Pages")

        async def is_shown() -> bool:
            await page.keyboard.press("g")
            await page.keyboard.press("m")
            return await menu.get_by_role("link").count() > 0

        await until(is_shown)  # keys that come too late after each other are no sequence
        seen = []
        for path in PAGES:
            await menu.locator(f'a[href="{path}"]').focus()
            await page.keyboard.press("Enter")
            await expect(menu.locator('[aria-current="page"]')).to_have_attribute("href", path)
            await expect(page.get_by_role("heading", level=1)).not_to_be_empty()
            seen.append(path)
            assert len(await page.evaluate(_PAGE_STYLES)) <= 1, path
        assert seen == PAGES
        await page.get_by_role("link", name="Chats").click()
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        assert await page.evaluate(_PAGE_STYLES) == []
        watched.assert_clean()
