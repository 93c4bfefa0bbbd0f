"""The browser of a session, from the agent's call to `/browser` and the end of the session."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client
from tests.tools.browser.agent_browser import CHROMIUM
from tests.tools.browser.website import serving

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed; scripts/system-packages.sh installs it."),
    pytest.mark.slow,
]


async def test_browser_ends_with_its_session(tmp_path: Path, server: ModelServer) -> None:
    with serving() as site:
        url = site.page("/welcome", "<h1>Welcome to the site</h1>")
        settings = f'[tools]\ntoolsets = ["browser"]\n[browser]\nallowed_hosts = ["{site.host}"]\n'
        async with open_chat_client(tmp_path, server, settings=settings) as client:
            assert "isn't running" in await client.use("/browser")
            server.script(Say(calls=[Ask("browser", {"action": "open", "url": url})]), Say("Done."))
            await client.say("Open it")
            assert "Welcome to the site" in str(server.received[-1].json)
            assert "untrusted_content" in str(server.received[-1].json)
            server.script(Say(calls=[Ask("browser", {"action": "screenshot", "send": True})]), Say("Done."))
            await client.say("Show it to me")
            saved = re.search(r"Screenshot of \S+: (/\S+\.jpg)\\nIt wasn't sent\.", str(server.received[-1].json))
            assert saved is not None
            assert await asyncio.to_thread(Path(saved[1]).exists)
            shown = await client.use("/browser")
            assert url in shown
            assert f"/browser/{client.active_session.session_id}" in shown
            assert "You have the browser" in await client.use("/browser takeover")
            assert "You have it" in await client.use("/browser")
            assert "again" in await client.use("/browser handback")
            assert await client.use("/browser close") == "Closed the browser."
            folder = client.application.profile.browsers_folder / client.active_session.session_id
            assert folder.exists()
            await client.use("/new")
            await until(lambda: not folder.exists())


async def test_session_without_a_browser_has_nothing_to_take_over(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        assert await client.use("/browser close") == "The browser isn't running."
        assert "no browser" in await client.use("/browser takeover")
        assert "isn't known" in await client.use("/browser dance")
