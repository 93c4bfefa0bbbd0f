"""Requests and output of the agent in the web app: plans, questions of MCP servers, images, new skills."""

import sys
import wave
from pathlib import Path

from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted, hosted
from tests.tools.browser.agent_browser import HEADLESS_SHELL
from tests.tools.browser.website import serving
from tests.web.browser.pages import needs_chromium, signed_in

from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium

_MCP_SERVER = Path(__file__).parents[2] / "tools/mcp/mcp_server.py"
_WRITE = Ask("write_file", {"path": "plan.txt", "content": "done"})
_SKILL = "---\nname: tidy\ndescription: Tidies up.\n---\n\nRun `sh scripts/tidy.sh`.\n"


async def test_a_plan_is_changed_and_approved(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.script(
        Say("First I write the file.", calls=[_WRITE]),
        Say("Now I write it, then check it.", calls=[_WRITE]),
        Say("Ok."),
    )
    async with signed_in(browser, host) as watched:
        page, asked = watched.page, watched.page.get_by_role("region", name="Approval needed")
        await watched.say("/plan Write the file")
        await expect(asked).to_contain_text("Carry out the plan?")
        await expect(page.locator(".bubble")).to_have_text("Write the file")
        await expect(asked).to_contain_text("write_file: plan.txt")
        await expect(page.locator(".reply").last).to_have_text("First I write the file.")
        await expect(asked.get_by_role("button")).to_have_text(
            ["Carry out the plan", "Keep planning", "Say what should change …"]
        )
        await asked.get_by_role("button", name="Say what should change").click()
        await asked.get_by_label("What should change").fill("check it too")
        await watched.assert_accessible()
        await asked.locator("form").get_by_role("button", name="Keep planning").click()
        await expect(page.locator(".reply").last).to_have_text("Now I write it, then check it.")
        assert "check it too" in str(model.received[1].json)
        await asked.get_by_role("button", name="Carry out the plan").click()
        await expect(page.locator(".reply").last).to_have_text("Ok.")
        await expect(page.locator(".banner")).to_have_count(0)
        await page.reload()
        await expect(page.locator(".bubble")).to_have_text("Write the file")
        watched.assert_clean()


async def test_plan_mode_is_shown_until_it_is_left(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Yes."))
    async with signed_in(browser, host) as watched:
        page, banner = watched.page, watched.page.locator(".banner")
        await watched.say("/plan")  # in a new conversation, which begins with it
        await expect(banner).to_contain_text("Plan mode")
        await expect(page.locator(".note")).to_contain_text("Plan mode is on")
        await watched.say("Hi")
        await expect(page.locator(".reply")).to_have_text("Yes.")
        await expect(page.locator(".note")).to_have_count(0)
        await expect(banner).to_contain_text("Plan mode")
        await watched.assert_accessible()
        await banner.get_by_role("button", name="Leave plan mode").click()
        await expect(banner).to_have_count(0)
        await watched.say("/plan")
        await banner.get_by_role("button", name="Approve the plan").click()
        await expect(page.locator(".bubble").last).to_have_text("The plan is approved. Carry it out now.")
        await expect(page.locator(".reply")).to_have_count(2)
        await expect(banner).to_have_count(0)
        watched.assert_clean()


async def test_question_of_an_mcp_server_is_answered(browser: Browser, tmp_path: Path, model: ModelServer) -> None:
    settings = (
        f'[mcp.shop]\ncommand = "{sys.executable}"\nargs = ["{_MCP_SERVER}", "stdio"]\nconnect_timeout_seconds = 60\n'
    )
    model.script(Say(calls=[Ask("mcp_shop_choose", {})]), Say("Tea it is."))
    async with hosted(tmp_path, model, settings) as host, signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Order")
        await page.get_by_role("button", name="Allow once").click()
        asked = page.get_by_role("region", name="Question")
        await expect(asked).to_contain_text("The MCP server shop asks: What to drink?")
        await expect(asked.get_by_role("button")).to_have_text(["tea", "coffee", "Decline", "Answer"])
        await watched.assert_accessible()
        await asked.get_by_role("button", name="tea").click()
        await expect(page.locator(".reply").last).to_have_text("Tea it is.")
        assert "chosen: tea" in str(model.received[-1].json["messages"][-1])
        watched.assert_clean()


async def test_generated_images_and_screenshots_are_shown(browser: Browser, tmp_path: Path, model: ModelServer) -> None:
    with serving() as site:
        settings = (
            '[images]\ngenerate = "mine:draws"\n[approval]\nmode = "off"\n[tools]\ntoolsets = ["media", "send", '
            f'"browser"]\n[browser]\nallowed_hosts = ["{site.host}"]\ntimeout_seconds = 60\n'
            f'executable_path = "{HEADLESS_SHELL}"\n'
            "[models.scripted]\nimages = true\n"
        )
        url = site.page("/shop", "<h1>Shop</h1>")
        model.script(
            Say(calls=[Ask("image_generate", {"prompt": "a fox"})]),
            Say(calls=[Ask("browser", {"action": "open", "url": url})]),
            Say(calls=[Ask("browser", {"action": "screenshot", "send": True})]),
            Say("Here they are."),
        )
        async with hosted(tmp_path, model, settings) as host, signed_in(browser, host) as watched:
            page = watched.page
            await watched.say("Draw")
            try:
                await expect(page.locator(".reply").last).to_have_text("Here they are.")
                results = [one["content"] for one in model.received[-1].json["messages"] if one["role"] == "tool"]
                pictures = page.locator(".entries > li > .entry > .files img")
                await expect(pictures, f"results of the tools: {results}").to_have_count(2)
                await expect(page.locator(".bubble")).to_have_text("Draw")
                await watched.turn_stored()
                await page.locator("details.tool").last.locator("summary").click()
                await expect(page.locator(".fold-body img")).to_have_count(1)
                for picture in await page.locator(".files img").all():
                    await picture.scroll_into_view_if_needed()
                    await expect(picture).to_have_js_property("complete", value=True)
                    assert await picture.evaluate("one => one.naturalWidth") > 0
                watched.assert_clean()
            finally:
                host.application.browsers.end_session(SessionId(page.url.rpartition("/")[2]))


async def test_recordings_can_be_played(browser: Browser, tmp_path: Path, model: ModelServer) -> None:
    with wave.open(str(tmp_path / "one.wav"), "wb") as second:
        second.setparams((1, 2, 8000, 0, "NONE", ""))
        second.writeframes(bytes(16_000))
    settings = f'[voice]\nspeaker = "command"\nspeak_command = "cat {tmp_path / "one.wav"} > {{file}}"\n'
    model.script(Say(calls=[Ask("speak", {"text": "Hello"})]), Say("Listen."))
    async with hosted(tmp_path, model, settings) as host, signed_in(browser, host) as watched:
        await watched.say("Speak")
        await expect(watched.page.locator(".reply").last).to_have_text("Listen.")
        recording = watched.page.locator(".files audio")
        await expect(recording).to_have_js_property("duration", 1)
        await expect(watched.page.locator(".files .file")).to_have_text("speech.wav")
        await watched.assert_accessible()
        watched.assert_clean()


async def test_an_installed_skill_is_confirmed(browser: Browser, host: Hosted, tmp_path: Path) -> None:
    application, source = host.application, tmp_path / "source"
    (source / "scripts").mkdir(parents=True)
    (source / "SKILL.md").write_text(_SKILL)
    (source / "scripts/tidy.sh").write_text("rm -rf build\n")
    (change,) = application.knowledge.skills.fetch(str(source))
    application.knowledge.skills.apply(change, enable=False)
    script = application.profile.skills_folder / "tidy/scripts/tidy.sh"
    async with signed_in(browser, host, path="/tools") as watched:
        page, switch = watched.page, watched.page.get_by_role("switch", name="Skill tidy")
        await switch.click()
        shown = page.get_by_role("region", name="What tidy would run")
        await expect(shown).to_contain_text("scripts/tidy.sh")
        await watched.assert_accessible()
        await expect(switch).not_to_be_checked()
        script.write_text("rm -rf build dist\n")
        await shown.get_by_role("button", name="Enable tidy").click()
        await expect(page.locator(".toast")).to_contain_text("have changed since you looked at them")
        assert not application.knowledge.skills.get("tidy").is_enabled
        await shown.get_by_role("button", name="Leave it off").click()
        await switch.click()
        await shown.get_by_role("button", name="Enable tidy").click()
        await expect(switch).to_be_checked()
        assert application.knowledge.skills.get("tidy").is_enabled
        await switch.click()
        await expect(switch).not_to_be_checked()
        assert not application.knowledge.skills.get("tidy").is_enabled
