"""Interrupted connections and pages: offline, frozen, slow, and a server that is upgraded or restarted."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Page, Route, expect
from tests.api.in_process_server import Hosted
from tests.app.program import TALARIA, Program
from tests.app.program_with_model import scripted_program
from tests.system.gateway_workers import gateway_program
from tests.web.browser.pages import WatchedPage, assert_equals_transcript, needs_chromium, served, signed_in

import talaria
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.wait import LIMIT, until

pytestmark = needs_chromium

STORY = " ".join(f"word{number}" for number in range(200))


class PausedReply:
    """Model replies; the reply to "Go on" waits until the test sets ``may_continue``."""

    def __init__(self, model: ModelServer) -> None:
        self.may_continue = asyncio.Event()
        model.answering(self._answer)

    async def _answer(self, received: Received) -> Say:
        if received.is_title_request:
            return Say("A story")
        if received.question == "Go on":
            await self.may_continue.wait()
        return Say(STORY, chunks=40)


async def _start_paused_turn(watched: WatchedPage) -> None:
    """Send a message and wait for its reply, then send another whose turn stays running."""
    await watched.say("Begin")
    await expect(watched.page.locator(".reply")).to_contain_text(re.compile("word199$"))
    await expect(watched.page.get_by_role("button", name="Stop")).to_be_hidden()
    await watched.say("Go on")
    await expect(watched.page.get_by_role("button", name="Stop")).to_be_visible()


async def _assert_caught_up(page: Page) -> None:
    await expect(page.locator(".reply")).to_have_count(2)
    await expect(page.locator(".reply").last).to_contain_text(re.compile("word199$"))
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await assert_equals_transcript(page)


async def test_page_catches_up_once_after_a_minute_offline(browser: Browser, host: Hosted, model: ModelServer) -> None:
    reply = PausedReply(model)
    async with signed_in(browser, host, installs=True) as watched:
        page = watched.page
        await page.clock.install()
        await page.reload()
        await page.get_by_role("heading", name="New conversation").wait_for()
        await _start_paused_turn(watched)
        await page.clock.run_for(5_000)
        await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        await watched.context.set_offline(offline=True)
        await page.clock.run_for(60_000)
        await expect(page.locator(".banner")).to_contain_text("Connection lost")
        await page.get_by_label("Message", exact=True).fill("While I was away")
        await page.keyboard.press("Enter")
        await expect(page.locator(".toast")).to_contain_text("You're offline")
        reply.may_continue.set()
        await _wait_until_idle(host)
        await page.clock.run_for(60_000)
        await watched.context.set_offline(offline=False)
        await page.clock.run_for(15_000)
        await page.clock.resume()
        await expect(page.locator(".reply")).to_have_count(3)
        await expect(page.locator(".bubble")).to_have_text(["Begin", "Go on", "While I was away"])
        await expect(page.locator(".banner")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await assert_equals_transcript(page)


async def test_frozen_page_catches_up_once(browser: Browser, host: Hosted, model: ModelServer) -> None:
    reply = PausedReply(model)
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _start_paused_turn(watched)
        session = await watched.context.new_cdp_session(page)
        await session.send("Page.setWebLifecycleState", {"state": "frozen"})
        reply.may_continue.set()
        await _wait_until_idle(host)
        await session.send("Page.setWebLifecycleState", {"state": "active"})
        await _assert_caught_up(page)
        watched.assert_clean()


async def _wait_until_idle(host: Hosted) -> None:
    """Wait until no turn is running on the server."""

    async def is_idle() -> bool:
        return not await host.application.store.read(lambda tx: tx.turns.find(running=True))

    await until(is_idle)


async def test_page_on_a_slow_connection_ends_with_the_transcript(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    reply = PausedReply(model)
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _start_paused_turn(watched)
        session = await watched.context.new_cdp_session(page)
        await _set_speed(session, 300)
        reply.may_continue.set()
        await _wait_until_idle(host)
        await _set_speed(session, -1)
        await _assert_caught_up(page)
        watched.assert_clean()


async def _set_speed(session: CDPSession, bytes_per_second: int) -> None:
    await session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": bytes_per_second, "uploadThroughput": -1},
    )


async def test_turn_that_ends_while_its_session_loads_is_shown_once(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    """Messages that arrive while the session loads are shown once, in any order of arrival."""
    reply = PausedReply(model)
    async with signed_in(browser, host) as watched:
        page, ended, loaded = watched.page, asyncio.Event(), asyncio.Event()

        async def delay(route: Route) -> None:
            is_load = "after=" not in route.request.url
            await (ended if is_load else loaded).wait()
            await route.continue_()
            if is_load:
                await (await route.request.response()).finished()  # type: ignore[union-attr]
                loaded.set()

        await _start_paused_turn(watched)
        await page.route("**/messages?*", delay)
        await page.reload()
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        reply.may_continue.set()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        ended.set()
        await _assert_caught_up(page)
        watched.assert_clean()


async def test_server_upgrade_is_reported_and_the_draft_remains(
    tmp_path: Path, browser: Browser, model: ModelServer
) -> None:
    model.answering(lambda received: Say(f"re: {received.question}"))
    program = scripted_program(tmp_path, model)
    async with served(program, browser, installs=True) as watched, asyncio.timeout(LIMIT * 1.8):
        page, server = watched.page, watched.server
        assert server is not None
        await watched.say("Hello")
        await expect(page.locator(".reply")).to_contain_text("re: Hello")
        await page.get_by_label("Message", exact=True).fill("An unfinished thought")
        await server.end()
        await expect(page.locator(".banner")).to_contain_text("Connection lost")
        async with _newer_version(program, tmp_path / "newer", server.port):
            await expect(page.locator(".banner")).to_contain_text("A new version of Talaria is running")
            await page.get_by_role("link", name="Manage").click()
            await expect(page.locator(".banner")).to_contain_text("A new version of Talaria is running")
            await page.get_by_role("link", name="Chats").click()
            await page.get_by_role("button", name="Reload").click()
            await expect(page.locator(".banner")).to_have_count(0)
            await expect(page.locator(".reply")).to_contain_text("re: Hello")
            await expect(page.get_by_label("Message", exact=True)).to_have_value("An unfinished thought")
            style = await page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--newer')")
            assert style.strip() == "1"


@asynccontextmanager
async def _newer_version(program: Program, folder: Path, port: int) -> AsyncIterator[None]:
    """Serve another version of Talaria, with other files, at the same port."""
    source = Path(talaria.__file__).parent
    shutil.copytree(source, folder / "talaria")  # with its bytecode, which stays valid
    with (folder / "talaria/web/static/app.css").open("a") as styles:
        styles.write(":root { --newer: 1; }\n")
    process = await asyncio.create_subprocess_exec(
        TALARIA,
        "serve",
        "--port",
        str(port),
        env=program.environment(PYTHONPATH=str(folder)),
        cwd=program.home / "work",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_a_gateway_is_restarted_from_its_page(tmp_path: Path, browser: Browser, model: ModelServer) -> None:
    async with LoopbackNetwork() as network:
        program = gateway_program(tmp_path, model, network)
        started = await asyncio.to_thread(program.run, "gateway", "start")
        assert started.code == 0, started.err
        try:
            async with served(program, browser) as watched, asyncio.timeout(LIMIT * 1.8):
                page = watched.page
                await watched.open("/gateway")
                card = page.locator("li.work-panel")
                await expect(card).to_contain_text(re.compile(r"Process \d+"))
                begun = await card.locator("time").first.get_attribute("datetime")
                await page.get_by_role("button", name="Restart").click()
                await page.get_by_role("button", name="Restart the gateway?").click()
                await expect(card.locator("time").first).not_to_have_attribute("datetime", str(begun))
                await expect(card).to_contain_text("connected")
                watched.assert_clean()
        finally:
            await asyncio.to_thread(program.run, "gateway", "stop")
