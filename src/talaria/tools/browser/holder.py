"""Holder of a browser: a process of its own that runs Chromium and its proxy, and outlives the agent.

Started by `BrowserFolder`. It ends with the browser, when it is asked to, and after the idle limit. If it is killed,
the browser ends with it, and without its proxy no page can reach the network.
"""

import asyncio
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from talaria.core.chromium import has_small_shared_memory, is_root
from talaria.core.os_processes import kill_tree, list_process_tree, machine_id, read_start_time, signal_all
from talaria.tools.browser.proxy import GuardedProxy
from talaria.tools.browser.session_folder import BrowserFolder, BrowserState, LaunchOptions

_FLAGS = (
    "--remote-debugging-port=0", "--no-first-run", "--no-default-browser-check", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-breakpad",
    "--disable-client-side-phishing-detection", "--disable-domain-reliability", "--metrics-recording-only",
    "--disable-features=Translate,MediaRouter,DialMediaRouteProvider,OptimizationHints,AcceptCHFrame",
    "--password-store=basic", "--use-mock-keychain", "--disable-quic", "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--hide-crash-restore-bubble",
    "--disable-session-crashed-bubble", "--window-size=1280,900", "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)  # fmt: skip
_NO_SANDBOX = b"No usable sandbox"
_SINGLETONS = ("SingletonLock", "SingletonSocket", "SingletonCookie")
_END_SECONDS = 5.0
_POLL = 0.03
_CHECK_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_LOG_TAIL = 600


class _BrowserGone(Exception):
    """The browser ended before it could be connected to."""


def main(folder: BrowserFolder) -> None:
    """Hold the browser of a folder in a process without a parent, unless there is one already.

    The lock is taken before the fork and stays with the child, so the caller knows afterwards that it is held.
    """
    with folder.lock.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if os.fork():
            return
        os.setsid()
        asyncio.run(_hold(folder))


async def _hold(folder: BrowserFolder) -> None:
    """Run the browser until it ends, is ended, or is idle for too long."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await _run(folder, stop)
    finally:
        if folder.remove_marker.exists():
            shutil.rmtree(folder.place, ignore_errors=True)


async def _run(folder: BrowserFolder, stop: asyncio.Event) -> None:
    own = BrowserState(pid=os.getpid(), started=read_start_time(os.getpid()), machine=machine_id())
    folder.write_state(own)
    hosts = _AllowedHosts(folder)
    async with GuardedProxy(hosts.read, folder.add_blocked) as proxy:
        try:
            browser, sandboxed, endpoint = await _start(folder, hosts.options, proxy.port)
        except (_BrowserGone, OSError) as error:
            sentence = f"The browser couldn't be started: {error}"
            folder.write_state(structs.replace(own, error=sentence))  # stays for the process that asked for it
            return
        state = structs.replace(
            own, browser_pid=browser.pid, endpoint=endpoint, sandboxed=sandboxed, visible=hosts.options.visible
        )
        try:
            folder.write_state(state)
            await _wait_for_end(folder, hosts, browser, stop)
        finally:
            await _end(browser)
            folder.write_state(None)


class _AllowedHosts:
    """The options in the folder, read again when they change."""

    def __init__(self, folder: BrowserFolder) -> None:
        self._folder = folder
        self.options = folder.read_options()

    def read(self) -> frozenset[str]:
        """Return the hosts that pages may reach although they are not public."""
        with suppress(OSError):
            self.options = self._folder.read_options()
        return frozenset(host.lower() for host in self.options.allowed_hosts)


async def _start(folder: BrowserFolder, options: LaunchOptions, proxy: int) -> tuple[Process, bool, str]:
    """Return the browser, whether its sandbox is on, and the address to connect to."""
    if is_root():
        return await _start_once(folder, options, proxy, sandboxed=False)
    try:
        return await _start_once(folder, options, proxy, sandboxed=True)
    except _BrowserGone:
        if _NO_SANDBOX not in folder.log.read_bytes():
            raise
    return await _start_once(folder, options, proxy, sandboxed=False)


async def _start_once(
    folder: BrowserFolder, options: LaunchOptions, proxy: int, *, sandboxed: bool
) -> tuple[Process, bool, str]:
    port_file = folder.data / "DevToolsActivePort"
    for stale in (port_file, *(folder.data / name for name in _SINGLETONS)):  # ours: the lock is held
        stale.unlink(missing_ok=True)
    flags = [
        *_FLAGS, f"--user-data-dir={folder.data}", f"--proxy-server=http://127.0.0.1:{proxy}",
        "--proxy-bypass-list=<-loopback>",
    ]  # fmt: skip
    flags += [] if options.visible else ["--headless=new", "--disable-gpu", "--mute-audio"]
    flags += [] if sandboxed else ["--no-sandbox", "--test-type"]  # the latter hides the warning about the former
    flags += ["--disable-dev-shm-usage"] if has_small_shared_memory() else []
    with folder.log.open("ab") as log:
        browser = await asyncio.create_subprocess_exec(
            options.executable,
            *flags,
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(options.environment),
            preexec_fn=_die_with_parent,
        )
    try:
        return browser, sandboxed, await _read_endpoint(browser, port_file)
    except BaseException as error:
        await _end(browser)
        if isinstance(error, _BrowserGone):
            tail = folder.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace").strip()
            raise _BrowserGone(f"it ended with code {browser.returncode}. {tail}") from error
        raise


async def _read_endpoint(browser: Process, port_file: Path) -> str:
    while browser.returncode is None:
        with suppress(OSError):
            port, _, path = (await asyncio.to_thread(port_file.read_text)).partition("\n")
            if path:
                return f"ws://127.0.0.1:{port}{path.strip()}"
        await asyncio.sleep(_POLL)
    raise _BrowserGone


async def _wait_for_end(folder: BrowserFolder, hosts: _AllowedHosts, browser: Process, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(one) for one in (browser.wait(), stop.wait(), _wait_for_idle(folder, hosts))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()


async def _wait_for_idle(folder: BrowserFolder, hosts: _AllowedHosts) -> None:
    """Return when the browser has not been used for the idle limit, or its folder is gone."""
    while folder.place.exists():
        hosts.read()
        left = folder.used_at + hosts.options.idle_seconds - time.time()
        if left <= 0:
            return
        await asyncio.sleep(min(left, _CHECK_SECONDS))


async def _end(browser: Process) -> None:
    """End the browser so that it saves its profile; kill it and its children after a moment."""
    members = list_process_tree(browser.pid)
    if browser.returncode is None:
        browser.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await browser.wait()
    if browser.returncode is None:
        kill_tree(browser.pid)
        await browser.wait()
    signal_all(members & list_process_tree(os.getpid()), signal.SIGKILL)


def _die_with_parent() -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(BrowserFolder(Path(sys.argv[1])))
