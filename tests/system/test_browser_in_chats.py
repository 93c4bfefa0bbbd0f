"""A browser in a chat: screenshots arrive, it outlives eviction and a killed gateway, and ends with its session."""

import re
import signal
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program
from tests.gateway.in_process_gateway import run_gateway
from tests.system.test_gateway_process import running
from tests.tools.browser.agent_browser import CHROMIUM, HEADLESS_SHELL
from tests.tools.browser.website import serving

from talaria.contracts.platform import PlatformCapabilities
from talaria.core.os_processes import is_running
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.wait import until
from talaria.tools.browser.session_folder import list_browsers

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed; scripts/system-packages.sh installs it."),
    pytest.mark.slow,
]
_PAGE = "<h1 id=born></h1><script>born.textContent = 'born ' + Math.random()</script>"
_JPEG = b"\xff\xd8\xff"


async def test_screenshot_is_posted_and_the_browser_survives_a_killed_gateway(
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
                f'[browser]\nallowed_hosts = ["{site.host}"]\nexecutable_path = "{HEADLESS_SHELL}"\n'
                "[gateway]\nlease_seconds = 1.0\n"
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
                born = re.search(r"born 0\.\d+", " ".join(str(one.json) for one in server.received))
                gateway.send_signal(signal.SIGKILL)
                await gateway.wait()
            async with running(program):
                server.script(Say(calls=[Ask("browser", {"action": "snapshot"})]), Say("Still there."))
                await chat.says(ann, "and now?")
                await chat.wait_for(lambda message: message.text == "Still there.")
                assert born is not None
                seen = max(str(one.json).count(born[0]) for one in server.received)  # the last may ask for a title
                assert seen == 2, "before and after the kill"
                assert site.seen.count("/welcome") == 1
                (folder,) = (tmp_path / "profiles" / "default" / "browsers").iterdir()
                await chat.says(ann, "/new")
                await until(lambda: not folder.exists())


def browsing(received: Received) -> Say:
    """Run the browser action of the message, and repeat text of the page."""
    last = received.json["messages"][-1]
    if last["role"] == "tool":
        return Say(f"page: {' '.join(re.findall(r'born 0[.][0-9]+|seat=[0-9]+', last['content']))}")
    action, _, url = received.question.partition(" ")
    if action in {"open", "snapshot"}:
        return Say(calls=[Ask("browser", {"action": action, "url": url} if url else {"action": action})])
    return Say("ok")


async def test_evicted_session_retains_its_tab_and_cookies(tmp_path: Path, server: ModelServer) -> None:
    async def send_and_wait(chat: str, text: str) -> str:
        before = len(network.shown(chat))
        network.say(chat, text, sender=chat)
        answers = await until(
            lambda: [one for one in network.shown(chat)[before:] if not one.startswith(("… ", "✓ "))]  # tool calls
        )
        return answers[0]

    server.answering(browsing)
    capabilities = PlatformCapabilities(text_limit=4096, idempotent=True)
    with serving() as site:
        page = site.page("/seat", f"{_PAGE}<script>document.cookie = 'seat=7'</script>")
        other = site.page("/other", "<p id=cookie></p><script>cookie.textContent = document.cookie</script>")
        settings = (
            'owners = ["loopback:ann", "loopback:bob"]\n[gateway]\nopen_sessions = 1\n'
            f'[tools]\ntoolsets = ["browser"]\n[browser]\nallowed_hosts = ["{site.host}"]\n'
            f'executable_path = "{HEADLESS_SHELL}"\n'
        )
        async with (
            LoopbackNetwork(capabilities) as network,
            run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway,
        ):
            shown = await send_and_wait("ann", f"open {page}")
            assert shown.startswith("page: born 0.")
            (browser,) = list_browsers(tmp_path / "profiles" / "default" / "browsers")
            assert await send_and_wait("bob", "hello") == "ok"  # the only open session is Bob's now
            await until(lambda: len(gateway.chats) == 1)
            assert await send_and_wait("ann", "snapshot") == shown
            assert site.seen.count("/seat") == 1
            assert await send_and_wait("ann", f"open {other}") == "page: seat=7"
            await send_and_wait("ann", "/new")
            await until(lambda: not is_running(browser.pid))
