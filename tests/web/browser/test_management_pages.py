"""The management pages in a real browser: people, browsers, models, tools, memory and settings."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Route, expect
from tests.api.in_process_server import Hosted, hosted
from tests.web.browser.pages import DESKTOP, PHONE, needs_chromium, signed_in, watch
from tests.web.conftest import PEOPLE

from talaria.access.browsers import read_browsers
from talaria.access.pairing import approve_code, offer_code
from talaria.app.settings_reload import reload_settings
from talaria.contracts.stores.access import PairedPerson
from talaria.contracts.stores.sessions import Viewer
from talaria.settings.edit import set_value
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

pytestmark = needs_chromium

HARM = '<img src=x onerror="window.harmed = 1">'
PAGES = {
    "/people": "Who may talk",
    "/browsers": "Add a phone or another computer",
    "/models": "Providers and keys",
    "/tools": "Memory",
    "/settings": "Sections of the settings",
    "/settings/approval": "Sections of the settings",
    "/settings/people": "Sections of the settings",
    "/settings/file": "Sections of the settings",
}
LOOKED_AT = ("/browsers", "/models", "/settings")  # with the same contents in `test_every_page.py`


async def test_stored_markup_is_shown_as_text_on_every_page(browser: Browser, host: Hosted) -> None:
    """`test_every_page.py` checks all looks, but not these contents, nor the parts of the settings."""
    store, profile = host.application.store, host.application.profile
    await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "9", HARM)))
    host.application.knowledge.memory.edit(Viewer(), "user", "", f"Likes {HARM}")
    skill = profile.skills_folder / "harm"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: harm\ndescription: {HARM}\n---\n\n{HARM}\n")
    async with signed_in(browser, host) as watched:
        page = watched.page
        for path, part in PAGES.items():
            await watched.visit(path)
            await expect(page.get_by_label(part, exact=True).first).to_be_visible()
            if path not in LOOKED_AT:
                await watched.assert_accessible()
            await watched.assert_fits(PHONE, DESKTOP)
        assert await page.evaluate("window.harmed === undefined")
        watched.assert_clean()


async def test_the_menu_shows_the_page_that_is_open(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        await watched.page.set_viewport_size({"width": 1000, "height": 480})  # too low for the whole menu
        await watched.page.wait_for_function("innerHeight === 480")  # a busy browser changes it later
        drawn = asyncio.Event()

        async def delay(route: Route) -> None:
            await drawn.wait()
            await route.continue_()

        await watched.page.route("**/pages.css", delay)
        await watched.visit("/settings/approval")
        current = watched.page.get_by_role("navigation", name="Pages").locator("[aria-current]")
        await expect(current).to_be_in_viewport(ratio=0.99)
        drawn.set()  # the styles make the menu higher
        await expect(current).to_have_css("text-decoration-line", "none")
        await expect(current).to_be_in_viewport(ratio=0.99)


async def test_a_request_is_approved_and_a_key_created(browser: Browser, host: Hosted) -> None:
    store = host.application.store
    async with signed_in(browser, host, path="/people") as watched:
        page = watched.page
        await page.get_by_text("Nobody is asking for access.").wait_for()
        await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "9", "Grace")))  # the page is notified
        await page.get_by_role("button", name="Approve Grace").click()
        await expect(page.get_by_role("button", name="Revoke access of Grace")).to_be_visible()
        assert await store.read(lambda tx: tx.pairing.is_paired("telegram", "9"))
        await page.get_by_label("Name", exact=True).fill("grace")
        await page.get_by_label("First id").fill("telegram:9")
        await page.get_by_role("button", name="Add person").click()
        await page.get_by_role("switch", name="grace is an owner").click()
        await expect(page.get_by_role("switch", name="grace is an owner")).to_be_checked()
        assert host.application.settings.access.owners == ("grace",)
        await page.get_by_label("Name of a new key").fill("script")
        await page.get_by_role("button", name="Create key").click()
        await expect(page.locator(".copyable")).to_contain_text("tal_")
        await page.get_by_role("button", name="Done").click()
        await expect(page.locator(".copyable")).to_have_count(0)
        await page.get_by_role("button", name="Revoke the key script").click()
        await page.get_by_role("button", name="Revoke for good?").click()
        await expect(page.get_by_role("button", name="Revoke the key script")).to_have_count(0)
        watched.assert_clean()


async def test_a_browser_shows_a_code_and_the_owner_types_it(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, path="/browsers") as watched:
        context = await browser.new_context(viewport=PHONE)
        other = watch(await context.new_page(), context, host.url)
        await other.open("/")
        await other.page.get_by_role("button", name="Ask the owner instead").click()
        code = await other.page.locator(".big-code").inner_text()
        await other.assert_accessible()
        page = watched.page
        await page.get_by_label("The code it shows").fill(code.lower())
        await page.get_by_role("button", name="Sign it in").click()
        await expect(other.page.get_by_role("heading", name="New conversation")).to_be_visible()
        await page.get_by_role("button", name="Show a code").click()
        await expect(page.get_by_role("img", name="QR code to sign in")).to_be_visible()
        await watched.assert_accessible()
        watched.assert_clean()
        await context.close()


async def test_a_code_is_approved_in_a_terminal(browser: Browser, host: Hosted) -> None:
    store = host.application.store
    context = await browser.new_context(viewport=DESKTOP)
    other = watch(await context.new_page(), context, host.url)
    await other.open("/")
    await other.page.get_by_role("button", name="Ask the owner instead").click()
    code = await other.page.locator(".big-code").inner_text()
    await store.write(lambda tx: approve_code(tx, "web", code, person="alice"))
    await expect(other.page.get_by_role("heading", name="New conversation")).to_be_visible()
    (known,) = (await store.read(read_browsers)).values()
    assert known.person == "alice"
    await other.open("/tools")
    await expect(other.page.get_by_role("heading", level=1)).to_have_text("Memory")
    await expect(other.page.get_by_role("link", name="Settings")).to_have_count(0)
    await other.visit("/settings")
    await expect(other.page.get_by_text("There is no such page.")).to_be_visible()
    await context.close()


async def test_settings_are_changed_and_errors_are_shown_next_to_the_field(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, path="/settings") as watched:
        page = watched.page
        await page.get_by_label("Search settings").fill("model calls per turn")
        field = page.get_by_label("Max iterations")
        await field.fill("0")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".fault")).to_contain_text("from 1 to")
        await field.fill("12")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Changed", exact=True)).to_be_visible()
        assert host.application.settings.agent.max_iterations == 12
        await page.get_by_role("button", name="Reset agent.max_iterations to its default").click()
        await expect(page.get_by_text("Changed", exact=True)).to_have_count(0)
        assert host.application.settings.agent.max_iterations != 12
        await watched.assert_accessible()


async def test_setting_changed_elsewhere_is_not_overwritten(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, path="/settings/approval") as watched:
        page = watched.page
        await page.get_by_label("Mode", exact=True).select_option("off")
        set_value(host.application.profile, "log.level", "debug")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("changed in the meantime")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("Saved.")
        text = host.application.profile.config_file.read_text()
        assert 'level = "debug"' in text
        assert 'mode = "off"' in text


async def test_settings_file_is_compared_before_it_is_saved(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, path="/settings/file") as watched:
        page = watched.page
        editor = page.get_by_label("Settings as TOML")
        await expect(editor).to_have_value(host.application.profile.config_file.read_text())
        text = await editor.input_value()
        await editor.fill(f'{text}\n[log]\nlevel = "loud"\n')
        await page.get_by_role("button", name="Check and compare").click()
        await expect(page.locator(".notice.error")).to_contain_text("log.level must be one of")
        await expect(page.get_by_role("button", name="Save")).to_be_disabled()
        await editor.fill(f'{text}\n[log]\nlevel = "debug" # for now\n')
        await page.get_by_role("button", name="Check and compare").click()
        await expect(page.locator(".diff-add").last).to_contain_text('level = "debug"')
        await watched.assert_accessible()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("Saved.")
        assert "# for now" in host.application.profile.config_file.read_text()
        watched.assert_clean()


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    """A server of a home in which no model can be used."""
    async with hosted(tmp_path, model, PEOPLE) as server:
        profile = server.application.profile
        profile.config_file.write_text("[embedded]\nenabled = false\n")
        profile.secrets_file.unlink(missing_ok=True)
        reload_settings(server.application)
        yield server


async def test_a_first_model_is_set_up(browser: Browser, fresh: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Hello, I am ready."))
    async with signed_in(browser, fresh, viewport=PHONE, dark=True) as watched:
        page = watched.page
        await page.get_by_role("link", name="Set up a model").click()
        await expect(page.get_by_role("heading", name="Choose a model to begin")).to_be_visible()
        await watched.assert_accessible()
        await page.get_by_label("Address").fill("http://127.0.0.1:9/v1")
        await page.get_by_label("Name for it").fill("mine")
        server = page.get_by_label("On this machine")
        await server.get_by_role("button", name="Test and save").click()
        await expect(server.get_by_role("alert")).to_contain_text("Can't reach")
        await page.get_by_label("Address").fill(f"{model.url}/v1")
        await page.get_by_label("Key, if it needs one").fill("sk-a-long-enough-key-0001")
        await server.get_by_role("button", name="Test and save").click()
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        await watched.say("Are you there?")
        await expect(page.locator(".reply")).to_contain_text("I am ready.")
        watched.assert_clean()


async def test_a_model_is_tested_and_memory_is_edited(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Yes"))
    async with signed_in(browser, host, path="/models") as watched:
        page = watched.page
        await page.get_by_role("button", name="Test mine:scripted").click()
        await expect(page.locator(".result.good")).to_contain_text("Answers in")
        await page.get_by_role("button", name="Make mine:test-model the default").click()
        await expect(page.locator(".hero-name")).to_have_text("test-model")
        await watched.visit("/tools")
        await page.get_by_role("switch", name="Toolset web").click()
        await until(lambda: "web" not in host.application.settings.tools.toolsets)
        await page.get_by_label("Add to: About the person").fill("Likes tea")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Edit: Likes tea").click()
        await page.get_by_label("Entry").fill("Likes coffee")
        await page.get_by_role("button", name="Save").click()
        await page.get_by_role("button", name="Forget: Likes coffee").click()
        await page.get_by_role("button", name="Forget it?").click()
        await expect(page.get_by_text("Likes coffee")).to_have_count(0)
        assert host.application.knowledge.memory.show(Viewer()) == ""
        watched.assert_clean()


async def test_a_skill_and_a_hook_are_written(browser: Browser, host: Hosted) -> None:
    profile = host.application.profile
    async with signed_in(browser, host, path="/tools") as watched:
        page = watched.page
        await page.get_by_role("button", name="New skill").click()
        await page.get_by_label("Name: lower-case").fill("Water Plants")
        await page.get_by_label("When to use it").fill("For the plants")
        await page.get_by_label("What to do").fill("Water them.")
        await page.get_by_role("button", name="Create the skill").click()
        await expect(page.get_by_role("alert").first).to_contain_text("not a valid skill name")
        await page.get_by_label("Name: lower-case").fill("water-plants")
        await page.get_by_role("button", name="Create the skill").click()
        await page.locator("summary", has_text="water-plants: Text").click()
        await page.get_by_role("button", name="Edit water-plants").click()
        text = page.get_by_label("SKILL.md of water-plants")
        await text.fill((await text.input_value()).replace("Water them.", "Water them twice."))
        await watched.assert_accessible()
        await page.get_by_label("Skills").get_by_role("button", name="Save").click()
        await expect(page.get_by_label("Text of water-plants")).to_have_text("Water them twice.")
        await page.get_by_role("switch", name="Skill water-plants").click()
        await expect(page.get_by_role("switch", name="Skill water-plants")).not_to_be_checked()
        assert host.application.settings.tools.disabled_skills == ("water-plants",)
        assert "twice" in (profile.skills_folder / "water-plants/SKILL.md").read_text()
        await page.get_by_role("button", name="New hook").click()
        await page.get_by_label("Name of the new hook").fill("note")
        hooks = page.get_by_label("Hooks", exact=True)
        await hooks.get_by_role("button", name="Save").click()
        await page.get_by_role("switch", name="Hook note").click()
        await expect(page.get_by_role("switch", name="Hook note")).not_to_be_checked()
        assert "enabled: false" in (profile.folder / "hooks/note/HOOK.yaml").read_text()
        await watched.assert_accessible()
        await watched.assert_fits(PHONE)


async def test_model_is_chosen_for_one_session(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Yes"))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Hi")
        await expect(page.locator(".reply")).to_have_count(1)
        conversation = page.url
        await page.get_by_role("button", name="scripted").click()
        await page.get_by_role("link", name="Compare models and prices").click()
        await page.get_by_role("button", name="Use mine:test-model in this conversation").click()
        await expect(page.get_by_role("button", name="test-model", exact=True)).to_be_visible()
        assert page.url == conversation
        watched.assert_clean()
