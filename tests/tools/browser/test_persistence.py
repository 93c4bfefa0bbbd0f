"""Browsers outlive the agent and the program, and end with their session."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec import structs
from tests.tools.browser.agent_browser import CHROMIUM, HEADLESS_SHELL, AgentBrowser, find_ref, needs_chromium
from tests.tools.browser.website import Website

from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId, new_session_id
from talaria.core.os_processes import is_running, list_process_tree
from talaria.settings.environment import process_environment
from talaria.settings.sections.tools import BrowserSettings
from talaria.testing.wait import until
from talaria.tools.browser.session_folder import (
    BrowserFolder,
    BrowserState,
    LaunchOptions,
    describe_browser,
    end_browser,
    end_orphans,
    list_browsers,
)

pytestmark = needs_chromium

_OTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from tests.tools.browser.agent_browser import AgentBrowser
from talaria.settings.sections.tools import BrowserSettings

async def main(root, folder, host, session_id):
    agent = AgentBrowser(Path(root), Path(folder), BrowserSettings(allowed_hosts=(host,)), session_id=session_id)
    print(await agent.read("snapshot"))
    print(await agent.act("script", text="window.kept"))
    await agent.registry.close()

asyncio.run(main(*sys.argv[1:]))
"""
_COUNTER = "<p>Count</p><button onclick='this.textContent=\"Count \" + (window.kept = 42)'>Add</button>"


async def test_another_process_finds_the_browser_again(new_agent: AgentBrowser, site: Website) -> None:
    new_agent.settings = structs.replace(new_agent.settings, executable_path=HEADLESS_SHELL)
    page = await new_agent.open(site.page("/count", _COUNTER))
    await new_agent.act("click", find_ref(page, 'button "Add"'))
    pid = describe_browser(new_agent.root, new_agent.session_id).pid
    await new_agent.registry.close()
    assert is_running(pid)
    command = [sys.executable, "-c", _OTHER_PROCESS, str(new_agent.root), str(new_agent.folder), site.host]
    other = await asyncio.to_thread(
        subprocess.run, [*command, new_agent.session_id], capture_output=True, text=True, check=True
    )
    assert "Count 42" in other.stdout
    assert "Result: 42" in other.stdout
    assert describe_browser(new_agent.root, new_agent.session_id).pid == pid
    assert "Count 42" in await new_agent.read("snapshot")


async def test_killed_browser_is_started_again_on_the_same_profile(new_agent: AgentBrowser, site: Website) -> None:
    await new_agent.open(site.page("/shop", "<h1>Shop</h1><script>document.cookie='basket=7;max-age=9999'</script>"))
    pid = describe_browser(new_agent.root, new_agent.session_id).pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not new_agent.browser.folder.is_running)
    shown = await new_agent.read("snapshot")
    assert "started again" in shown
    assert "Shop" in shown
    assert describe_browser(new_agent.root, new_agent.session_id).pid != pid


@dataclass(frozen=True)
class RunningBrowser:
    """The browser of a session, to which nothing is connected."""

    root: Path
    session_id: SessionId
    folder: BrowserFolder
    state: BrowserState


@pytest_asyncio.fixture(loop_scope="session")
async def running_browser(tmp_path: Path) -> AsyncIterator[RunningBrowser]:
    session_id = new_session_id()
    folder = BrowserFolder(tmp_path / session_id)
    state = await folder.start(LaunchOptions(executable=CHROMIUM, environment=process_environment()))
    try:
        yield RunningBrowser(tmp_path, session_id, folder, state)
    finally:
        await folder.end(remove=True)


async def test_browser_ends_with_its_killed_holder(running_browser: RunningBrowser) -> None:
    socket = (running_browser.folder.data / "SingletonSocket").readlink()
    os.kill(running_browser.state.pid, signal.SIGKILL)
    await until(lambda: not is_running(running_browser.state.browser_pid))
    await until(lambda: not describe_browser(running_browser.root, running_browser.session_id).running)
    await running_browser.folder.end(remove=True)
    assert not socket.parent.exists(), "a folder outside of the profile is left"


async def test_hard_close_ends_the_browser_and_removes_its_profile(running_browser: RunningBrowser) -> None:
    socket = (running_browser.folder.data / "SingletonSocket").readlink()
    children = list_process_tree(running_browser.state.pid)
    assert running_browser.state.browser_pid in children
    end_browser(running_browser.root, running_browser.session_id)
    await until(lambda: not any(map(is_running, children)))
    await until(lambda: not running_browser.folder.path.exists())
    assert not socket.parent.exists(), "a folder outside of the profile is left"
    assert list_browsers(running_browser.root) == []


async def test_orphaned_browsers_are_found_and_ended(running_browser: RunningBrowser) -> None:
    root, session_id = running_browser.root, running_browser.session_id
    assert end_orphans(root, {session_id}) == []
    assert end_orphans(root, {new_session_id()}) == [session_id]
    await until(lambda: not running_browser.folder.path.exists())


# A program that starts like a browser, and starts another process while it ends, which writes to the profile.
_UNTIDY_BROWSER = """#!{python} -I
import os, pathlib, signal, sys, time
data = pathlib.Path(next(one.partition("=")[2] for one in sys.argv if one.startswith("--user-data-dir=")))
data.mkdir(exist_ok=True)
def end(*_):
    if os.fork():
        os._exit(0)
    deadline = time.monotonic() + 5
    while data.exists() and time.monotonic() < deadline:
        for number in range(100):
            try:
                (data / str(number)).touch()
            except FileNotFoundError:
                pass
    os._exit(0)
signal.signal(signal.SIGTERM, end)
(data / "DevToolsActivePort").write_text("1\\n/devtools")
signal.pause()
"""


async def test_profile_is_deleted_although_a_process_still_writes_to_it(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text(_UNTIDY_BROWSER.format(python=sys.executable))
    program.chmod(0o700)
    session_id = new_session_id()
    folder = BrowserFolder(tmp_path / session_id)
    await folder.start(LaunchOptions(executable=str(program), environment=process_environment()))
    end_browser(tmp_path, session_id)
    await until(lambda: not folder.path.exists())


async def test_idle_browser_is_closed(running_browser: RunningBrowser) -> None:
    folder = running_browser.folder
    folder.write_options(structs.replace(folder.read_options(), idle_seconds=0.1))
    await until(lambda: not folder.is_running)
    assert folder.data.exists()


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the browser have a window, on a display without a screen."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed; scripts/system-packages.sh installs it.")
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x1024x24", "-nolisten", "tcp"]
    with subprocess.Popen(command, pass_fds=(writing,), stderr=subprocess.DEVNULL) as server:
        os.close(writing)
        with os.fdopen(reading) as number:
            monkeypatch.setenv("DISPLAY", f":{number.readline().strip()}")
        try:
            yield
        finally:
            server.terminate()


@pytest.mark.usefixtures("display")
async def test_visible_browser_has_a_window(tmp_path: Path, new_settings: BrowserSettings) -> None:
    settings = structs.replace(new_settings, visible=True)
    agent = AgentBrowser(tmp_path / "browsers", tmp_path / "work", settings)
    try:
        connection = await agent.browser.connect()
        assert describe_browser(agent.root, agent.session_id).visible
        assert "Headless" not in await connection.page.evaluate("navigator.userAgent")
        assert await connection.page.evaluate("outerHeight > innerHeight"), "it has a bar with tabs and an address"
    finally:
        await agent.close()


async def test_cookies_reach_later_sessions_only_if_allowed(
    new_agent: AgentBrowser, new_settings: BrowserSettings, site: Website
) -> None:
    url = site.page("/cookie", "<script>document.write(document.cookie || 'no cookie')</script>")
    login = site.page("/login", "<script>document.cookie='login=ada;path=/;max-age=9999'</script>")
    new_settings = structs.replace(new_settings, executable_path=HEADLESS_SHELL)
    new_agent.settings = structs.replace(new_settings, keep_cookies=True)
    await new_agent.open(login)
    end_browser(new_agent.root, new_agent.session_id)
    for keeps, expected in ((True, "login=ada"), (False, "no cookie")):
        settings = structs.replace(new_settings, keep_cookies=keeps)
        later = AgentBrowser(new_agent.root, new_agent.folder, settings, registry=new_agent.registry)
        try:
            assert expected in await later.open(url)
        finally:
            end_browser(later.root, later.session_id)


async def test_browser_that_cannot_start_is_reported(new_agent: AgentBrowser) -> None:
    new_agent.settings = structs.replace(new_agent.settings, executable_path="/bin/false")
    with pytest.raises(ToolFailed, match="couldn't be started"):
        await new_agent.browser.connect()
    new_agent.settings = structs.replace(new_agent.settings, executable_path="/missing/chrome")
    with pytest.raises(ToolFailed, match="executable_path"):
        await new_agent.browser.connect()
