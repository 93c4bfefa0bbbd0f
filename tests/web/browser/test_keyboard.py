"""Everything by keyboard alone: a conversation, an approval, the palette and a page with a form."""

from playwright.async_api import Browser, Page, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import needs_chromium, signed_in

from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium
MOST_TABS = 80


async def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name has the focus, which must be visible then."""
    control = page.get_by_role("button", name=name, exact=True).or_(page.get_by_label(name, exact=True))
    for _ in range(MOST_TABS):
        await page.keyboard.press("Tab")
        if await control.evaluate_all("all => all.includes(document.activeElement)"):
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            within = await page.evaluate("getComputedStyle(document.activeElement.parentElement).outlineStyle")
            assert outline != "none" or within != "none", f"the focus on {name} can't be seen"
            return
    raise AssertionError(f"{name} can't be reached with Tab")


async def test_approval_is_denied_with_a_reason_by_keyboard(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("Cleaning"))
    model.script(
        Say(calls=[Ask("terminal", {"command": "rm -rf *"})]),
        Say(calls=[Ask("terminal", {"command": "rm -rf ."})]),
        Say("I left everything alone."),
    )
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.keyboard.type("Clean up")
        await page.keyboard.press("Enter")
        approval = page.get_by_role("region", name="Approval needed")
        await expect(approval).to_contain_text("rm -rf *")
        await expect(approval.get_by_role("button", name="Allow once")).to_be_enabled()
        await page.keyboard.press("Alt+4")
        await expect(approval).to_contain_text("rm -rf .")
        await expect(approval.get_by_role("button", name="Allow once")).to_be_enabled()
        await page.keyboard.press("Shift+Tab")
        await _tab_backwards_to(page, "Say why not …")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Why not")).to_be_focused()
        await watched.assert_accessible()
        await page.keyboard.type("Ask me first.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".reply").last).to_contain_text("I left everything alone.")
        assert any("the user refused: Ask me first." in str(one.json) for one in model.received)
        watched.assert_clean()


async def _tab_backwards_to(page: Page, name: str) -> None:
    button = page.get_by_role("button", name=name, exact=True)
    for _ in range(MOST_TABS):
        if await button.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Shift+Tab")
    raise AssertionError(f"{name} can't be reached with Shift+Tab")


async def test_job_is_scheduled_and_deleted_by_keyboard(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.keyboard.press("Control+k")
        palette = page.get_by_role("dialog", name="Command palette")
        await expect(palette.get_by_role("combobox")).to_be_focused()
        await page.keyboard.type("Schedules")
        await expect(palette.get_by_role("option").first).to_contain_text("Schedules")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Schedules")
        await _tab_to(page, "New job")
        await page.keyboard.press("Enter")
        await _tab_to(page, "When, and what?")
        await page.keyboard.type("every monday 9:00 water the plants")
        await expect(page.locator(".next-runs li")).to_have_count(5)
        await _tab_to(page, "Schedule")
        await page.keyboard.press("Enter")
        await expect(page.locator("li.work-panel")).to_contain_text("every Monday 9:00")
        await _tab_to(page, "Delete")
        await page.keyboard.press("Space")
        await page.keyboard.press("Space")
        await expect(page.get_by_role("button", name="Schedule something")).to_be_visible()
        watched.assert_clean()


async def test_setting_is_changed_by_keyboard(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, path="/settings/agent") as watched:
        page = watched.page
        await expect(page.get_by_label("Max iterations")).to_be_visible()
        await _tab_to(page, "Max iterations")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("12")
        await _tab_to(page, "Save")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Changed", exact=True)).to_be_visible()
        assert host.application.settings.agent.max_iterations == 12
        watched.assert_clean()
