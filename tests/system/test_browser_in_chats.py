"""A browser in a chat: screenshots arrive there, it outlives a killed gateway, and ends with the conversation."""

import re
import signal
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running
from tests.tools.browser.agent_browser import CHROMIUM
from tests.tools.browser.website import serving

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.wait import until

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed; scripts/system-packages.sh installs it."),
    pytest.mark.slow,
]
_PAGE = "<h1 id=born></h1><script>born.textContent = 'born ' + Math.random()</script>"
_JPEG = b"\xff\xd8\xff"


async def test_screenshot_arrives_and_a_killed_gateway_finds_the_browser_again(
    tmp_path: Path, server: ModelServer
) -> None:
    with serving() as site:
        url = site.page("/welcome", _PAGE)
        async with TelegramServer() as telegram:
            ann = telegram.user("Ann")
            chat = telegram.private(ann)
            program = scripted_program(
                tmp_path,
                server,
                f'[access]\nowners = ["telegram:{ann.id}"]\n[tools]\ntoolsets = ["browser", "send"]\n'
                f'[browser]\nallowed_hosts = ["{site.host}"]\n[gateway]\nlease_seconds = 1.0\n'
                f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
                f'base_file_url = "{telegram.base_file_url}"\n',
                f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
            )
            async with running(program) as gateway:
                server.script(
                    Say(calls=[Ask("browser", {"action": "open", "url": url})]),
                    Say(calls=[Ask("browser", {"action": "screenshot", "send": True})]),
                    Say("That is it."),
                )
                await chat.says(ann, "show me")
                await chat.wait_for(lambda message: message.text == "That is it.")
                await chat.wait_until(lambda: any(message.media for message in chat.answers))
                (picture,) = [message.media for message in chat.answers if message.media]
                assert picture.kind == "photo"
                assert picture.file.data.startswith(_JPEG)
                born = re.search(r"born 0\.\d+", str(server.received[-1].json))
                gateway.send_signal(signal.SIGKILL)
                await gateway.wait()
            async with running(program):
                server.script(Say(calls=[Ask("browser", {"action": "snapshot"})]), Say("Still there."))
                await chat.says(ann, "and now?")
                await chat.wait_for(lambda message: message.text == "Still there.")
                assert born is not None
                assert str(server.received[-1].json).count(born[0]) == 2, "before and after the kill"
                assert site.seen.count("/welcome") == 1
                (folder,) = (tmp_path / "profiles" / "default" / "browsers").iterdir()
                await chat.says(ann, "/new")
                await until(lambda: not folder.exists())
