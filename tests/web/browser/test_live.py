"""Sessions on Telegram and in a terminal, followed in a real browser, also after kill -9."""

import asyncio
import re
import signal
from pathlib import Path

from playwright.async_api import Browser, expect
from tests.app.program import TALARIA
from tests.app.program_with_model import scripted_program
from tests.system.gateway_workers import worker
from tests.web.browser.pages import assert_equals_transcript, needs_chromium, served, watch

from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.screen import open_screen
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.wait import LIMIT

pytestmark = needs_chromium

STORY = " ".join(f"word{number}" for number in range(300))


async def test_telegram_chat_is_followed_answered_taken_over_and_handed_back(
    tmp_path: Path, browser: Browser, model: ModelServer
) -> None:
    going_on, begun = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "Clean up" and "rm -rf" not in str(received.json["messages"]):
            return Say(calls=[Ask("terminal", {"command": "rm -rf *"})])
        if received.question == "Wait":
            begun.set()
            await going_on.wait()
        return Say(f"re: {received.question}", pause=0.01)

    model.answering(answer)
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        options = f'base_url = "{telegram.base_url}"\nbase_file_url = "{telegram.base_file_url}"\n'
        program = scripted_program(
            tmp_path,
            model,
            f'[access]\nowners = ["telegram:{ann.id}"]\n[platforms.telegram.options]\n{options}',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        chat = telegram.private(ann)
        async with worker(program), served(program, browser) as watched, asyncio.timeout(LIMIT * 1.8):
            page = watched.page
            await chat.says(ann, "Hello")
            await page.locator(".row", has_text="Telegram").get_by_role("link").click()
            await expect(page.locator(".reply")).to_contain_text("re: Hello")
            await expect(page.get_by_role("button", name="Take over")).to_be_visible()
            await chat.says(ann, "Clean up")
            await page.get_by_role("button", name="Don't allow").click()
            await expect(page.locator(".reply").last).to_contain_text("re: Clean up")
            await chat.says(ann, "Wait")
            await begun.wait()
            await page.get_by_role("button", name="Take over").click()
            await expect(page.locator(".banner")).to_contain_text("Taken over from Telegram")
            going_on.set()
            await expect(page.get_by_role("button", name="Hand back")).to_be_visible()
            await expect(page.locator(".reply").last).to_contain_text("re: Wait")
            await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
            await watched.say("Here now")
            await expect(page.locator(".reply").last).to_contain_text("re: Here now")
            await assert_equals_transcript(page)
            await page.get_by_role("button", name="Hand back").click()
            await expect(page.get_by_role("button", name="Take over")).to_be_visible()
            await chat.says(ann, "Back")
            await chat.wait_for(lambda message: message.text == "re: Back")
            await expect(page.locator(".reply").last).to_contain_text("re: Back")
            assert not [message for message in chat.messages if message.text == "re: Here now"]
            watched.assert_clean()


async def test_terminal_session_is_followed_steered_and_stopped(
    tmp_path: Path, browser: Browser, model: ModelServer
) -> None:
    model.answering(lambda received: Say(STORY, pause=0.05) if received.question == "Go" else Say("Yes."))
    program = scripted_program(tmp_path, model)
    async with (
        served(program, browser) as watched,
        open_screen([str(TALARIA), "chat"], env=program.environment(), cwd=tmp_path / "work") as screen,
        asyncio.timeout(LIMIT * 1.8),
    ):
        page = watched.page
        await screen.wait_for("❯")
        await screen.type("Go")
        await screen.press("enter")
        await page.locator(".row", has_text="Terminal").get_by_role("link").click()
        await expect(page.locator(".reply")).to_contain_text("word3")
        box = page.get_by_label("Message", exact=True)
        await box.fill("And now something else")
        await page.get_by_role("button", name="Steer").click()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(page.locator(".bubble").last).to_have_text("And now something else")
        await screen.wait_for("Yes.")
        watched.assert_clean()


async def test_session_continues_after_its_terminal_was_killed(
    tmp_path: Path, browser: Browser, model: ModelServer
) -> None:
    model.script(Say(STORY, pause=0.05))
    model.otherwise(Say(STORY, chunks=20))
    program = scripted_program(tmp_path, model)
    async with (
        served(program, browser) as watched,
        open_screen([str(TALARIA), "chat"], env=program.environment(), cwd=tmp_path / "work") as screen,
        asyncio.timeout(LIMIT * 1.8),
    ):
        page = watched.page
        await screen.wait_for("❯")
        await screen.type("Go")
        await screen.press("enter")
        await page.locator(".row", has_text="Terminal").get_by_role("link").click()
        await expect(page.locator(".reply")).to_contain_text("word5")
        screen.kill(signal.SIGKILL)
        renamed = page.url.rpartition("/")[2]  # so that the list is read, and the end of the process noticed
        await asyncio.to_thread(program.run, "sessions", "rename", renamed, "Cut off")
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await watched.say("Still there?")
        await expect(page.locator(".reply")).to_have_count(2)  # to "Go", which is resumed, and to the question
        await expect(page.locator(".reply").last).to_contain_text(re.compile("word299$"))
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await assert_equals_transcript(page)


async def test_another_tab_opens_the_stream_when_its_owner_is_killed(
    tmp_path: Path, browser: Browser, model: ModelServer
) -> None:
    model.answering(lambda received: Say(STORY, pause=0.02) if received.question == "Go" else Say("Yes."))
    program = scripted_program(tmp_path, model)
    async with served(program, browser) as watched, asyncio.timeout(LIMIT * 1.8):
        first = watched.page
        await watched.say("Go")
        await expect(first.locator(".reply")).to_contain_text("word3 ")
        other = watch(await watched.context.new_page(), watched.context, watched.url)
        await other.page.goto(first.url)
        await expect(other.page.locator(".reply")).to_contain_text("word3 ")
        before = await other.page.locator(".reply").inner_text()
        session = await watched.context.new_cdp_session(first)
        killing = asyncio.ensure_future(session.send("Page.crash"))
        await expect(other.page.locator(".reply")).to_contain_text(re.compile("word299$"))
        killing.cancel()
        await expect(other.page.get_by_role("button", name="Stop")).to_be_hidden()
        assert len(await other.page.locator(".reply").inner_text()) > len(before)
        await assert_equals_transcript(other.page)
        other.assert_clean()
