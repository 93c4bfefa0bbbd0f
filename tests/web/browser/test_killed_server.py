"""A server killed during a reply: the page finally shows exactly the stored transcript."""

import asyncio
import re
from pathlib import Path

from playwright.async_api import Browser, expect
from tests.api.server_process import serving
from tests.app.program_with_model import scripted_program
from tests.web.browser.pages import needs_chromium, watch

from talaria.testing.model_server import ModelServer, Say

pytestmark = needs_chromium


async def test_page_shows_the_transcript_after_the_server_was_killed(
    browser: Browser, tmp_path: Path, model: ModelServer
) -> None:
    reply = " ".join(f"word{number}" for number in range(400))
    model.script(Say(reply, pause=0.02))
    model.otherwise(Say(reply, chunks=20))
    program = scripted_program(tmp_path, model)
    async with serving(program) as server, await browser.new_context() as context:
        link = (await asyncio.to_thread(program.run, "web", "--no-open")).out.strip()
        assert link.startswith(f"{server.url}/#code=")
        watched = watch(page := await context.new_page(), context, server.url)
        await page.goto(link)
        await watched.say("Count")
        await expect(page.locator(".reply")).to_contain_text("word20 ")
        await server.kill()
        await expect(page.locator(".banner")).to_contain_text("Connection lost")
        port = server.port
        await server.start()
        assert server.port == port
        await expect(page.locator(".reply")).to_contain_text(re.compile(r"word399$"), timeout=60_000)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        shown = (await page.locator(".reply .markdown").inner_text()).strip()
        assert shown == reply
        session = page.url.rpartition("/")[2]
        stored = await page.evaluate(f"fetch('/web/sessions/{session}/messages').then(reply => reply.json())")
        assert [one["role"] for one in stored["messages"]] == ["user", "assistant"]
        assert stored["messages"][-1]["parts"][0]["text"].strip() == shown
        assert watched.foreign == []
