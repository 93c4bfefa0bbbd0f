"""The person takes the browser over, and hands it back."""

import asyncio

import pytest
from tests.tools.browser.agent_browser import LINK, AgentBrowser, needs_chromium
from tests.tools.browser.website import Website
from tests.tools.tool_calls import ScriptedPerson

from talaria.contracts.browser import BrowserInput
from talaria.core.errors import Refused
from talaria.testing.wait import until

pytestmark = needs_chromium


async def test_agent_asks_the_person_and_gets_a_fresh_page(agent: AgentBrowser, site: Website) -> None:
    await agent.open(site.page("/captcha", "<h1>Are you human?</h1>"))
    agent.person = ScriptedPerson("Done")
    shown = await agent.read("ask_person", text="Please solve the CAPTCHA")
    question, choices = agent.person.questions[0]
    assert "Please solve the CAPTCHA" in question
    assert LINK in question
    assert choices == ("Done", "I can't")
    assert "The person answered: Done" in shown
    assert "Are you human?" in shown
    assert not agent.browser.folder.handover.is_with_person


async def test_actions_wait_until_the_person_hands_the_browser_back(agent: AgentBrowser, site: Website) -> None:
    await agent.open(site.page("/wait", "<h1>Waiting</h1>"))
    handover = agent.browser.folder.handover
    handover.give_to_person()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(agent.read("snapshot"))
        await asyncio.sleep(0)
        assert not reading.done()
        handover.give_to_agent()
    assert "Waiting" in reading.result()


async def test_live_view_shows_the_page_and_accepts_input(agent: AgentBrowser, site: Website) -> None:
    style = "position:absolute;left:0;top:0;width:300px;height:40px"
    url = site.page("/input", f"<input style='{style}' oninput='document.title=value'>")
    await agent.open(url)
    view = await agent.registry.open_view(agent.session_id, lambda: agent.settings)
    try:
        frame = await anext(aiter(view.frames()))
        assert frame.url == url
        with pytest.raises(Refused, match="Take over first"):
            await view.send([BrowserInput("type", text="too early")])
        agent.browser.folder.handover.give_to_person()
        clicks = [BrowserInput("down", x=20, y=20), BrowserInput("up"), BrowserInput("type", text="by hand")]
        await view.send([*clicks, BrowserInput("key", text="Backspace")])
        page = (await agent.browser.connect()).page

        async def is_typed() -> bool:
            return bool(await page.title() == "by han")

        await until(is_typed)
        with pytest.raises(Refused, match="not a public address"):
            await view.send([BrowserInput("open", text="http://10.0.0.1/")])
    finally:
        agent.browser.folder.handover.give_to_agent()
        await view.close()
    assert "by han" in await agent.read("snapshot")
