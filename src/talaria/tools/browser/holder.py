"""Holder of a browser: a process of its own that runs Chromium and its proxy, and outlives the agent.

Started by `BrowserFolder`. It ends with the browser, when it is asked to, and after the idle limit. If it is killed,
the browser ends with it, and without its proxy no page can reach the network.

The proxy on loopback is the only way of the browser to the network, and connects to permitted addresses only. A name is
resolved here and the checked address is the one connected to, so neither a redirect, a subresource, a WebSocket nor a
second answer of the name server reaches this machine or its network. Where the environment names a proxy, connections
go through it: it resolves names itself, so those that are unknown here are left to its rules.
"""

import asyncio
import ctypes
import fcntl
import os
import re
import shutil
import signal
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Self

from msgspec import structs

from talaria.core.chromium import has_small_shared_memory, is_root
from talaria.core.errors import ToolFailed
from talaria.core.os_processes import kill_tree, list_process_tree, machine_id, read_start_time, signal_all
from talaria.http_client.connection import HttpAddress, HttpRoute, make_head
from talaria.http_client.dial import ProxyRefused, ProxyUnsupported, find_route, reach
from talaria.tools.browser.session_folder import BrowserFolder, BrowserState, LaunchOptions, delete_singletons
from talaria.tools.web.ssrf_guard import Guard

_CHUNK = 65_536
_LONGEST_HEAD = 262_144
_CONNECT_SECONDS = 20.0
_HEAD_END = b"\r\n\r\n"
_TARGET = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<host>[^/:\[\]@]+))(?::(?P<port>\d{1,5}))?(?P<path>/.*)?\Z", re.IGNORECASE)  # fmt: skip  # noqa: E501 (one pattern)
_HOP_HEADERS = (b"proxy-connection:", b"connection:", b"keep-alive:", b"proxy-authorization:")
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
_END_SECONDS = 5.0
_POLL = 0.03
_CHECK_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_LOG_TAIL = 600


class GuardedProxy:
    """HTTP proxy on a free port of loopback.

    ``allowed`` returns the hosts that are not checked, as ``name`` or ``name:port``; ``on_refused`` gets the host and
    port of each refused connection.
    """

    def __init__(self, allowed: Callable[[], frozenset[str]], on_refused: Callable[[str], None]) -> None:
        self._allowed = allowed
        self._on_refused = on_refused
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._serve_one(reader, writer)
        except (OSError, UnicodeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the browser sees a closed connection
        finally:
            writer.close()

    async def _serve_one(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(_HEAD_END)
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        found = _TARGET.match(rest.rpartition(" ")[0])
        if found is None or (method != "CONNECT" and (found["scheme"] or "").lower() != "http"):
            _answer(writer, 400, "Only http and https addresses can be opened.")
            return
        scheme = "https" if method == "CONNECT" else "http"
        server = HttpAddress(scheme, (found["v6"] or found["host"]).lower(), int(found["port"] or 80))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                route = find_route(server)
                upstream, sender = await _connect(route, Guard(self._allowed()))
        except ToolFailed:
            self._on_refused(f"{server.host}:{server.port}")
            _answer(writer, 403, f"Talaria blocked {server.host}: it is not a public address.")
            return
        except (OSError, TimeoutError, UnicodeError, ProxyUnsupported, asyncio.IncompleteReadError) as error:
            _answer(writer, 502, f"{server.host} can't be reached: {str(error) or 'it did not answer in time'}.")
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await _relay_both(reader, writer, upstream, sender)
            else:
                head = _join_request(method, route, found["path"] or "/", head)
                await _forward(head, (reader, writer), (upstream, sender))
        finally:
            sender.close()


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


async def _connect(route: HttpRoute, guard: Guard) -> tuple[StreamReader, StreamWriter]:
    """Connect to a permitted address, or to the proxy on the way, with a tunnel for https."""
    to, proxy = route.to, route.proxy
    if proxy is None:
        return await asyncio.open_connection(sock=await reach(to.host, to.port, guard.resolve), limit=_LONGEST_HEAD)
    await guard.check_through_proxy(to)
    reached, name = await reach(proxy.host, proxy.port), proxy.host if proxy.is_secure else None
    reader, writer = await asyncio.open_connection(
        sock=reached, limit=_LONGEST_HEAD, ssl=proxy.is_secure or None, server_hostname=name
    )
    if to.is_secure:
        login = {"Proxy-Authorization": proxy.login} if proxy.login else {}
        writer.write(make_head(f"CONNECT {to.authority} HTTP/1.1", {"Host": to.authority, **login}))
        status = (await reader.readuntil(_HEAD_END)).split(b" ", 2)[1]
        if status != b"200":
            writer.close()
            raise ProxyRefused(f"the proxy {proxy.authority} answered {status.decode('latin-1')}")
    return reader, writer


def _join_request(method: str, route: HttpRoute, path: str, head: bytes) -> bytes:
    """Return the head of a request for a server, or for the proxy on the way to it."""
    lines = head[: -len(_HEAD_END)].split(b"\r\n")[1:]
    target = f"http://{route.to.name}{path}" if route.proxy else path
    login = route.proxy.login if route.proxy else ""
    own = [f"Proxy-Authorization: {login}".encode("latin-1")] if login else []
    return _join_head(f"{method} {target} HTTP/1.1".encode("latin-1"), lines, own)


async def _forward(
    head: bytes,
    client: tuple[StreamReader, StreamWriter],
    server: tuple[StreamReader, StreamWriter],
) -> None:
    """Forward exactly one request and its response.

    Both sides close afterwards, and nothing after the request's body is sent on: a connection to one server never
    carries a request to another.
    """
    lines = head.split(b"\r\n")
    server[1].write(head)
    length = next((line.partition(b":")[2] for line in lines if line.lower().startswith(b"content-length:")), b"0")
    if any(line.lower().startswith(b"transfer-encoding:") for line in lines):
        _answer(client[1], 411, "This request has no length.")
        return
    async with asyncio.TaskGroup() as group:
        body = group.create_task(_copy(client[0], server[1], int(length)))
        await _copy_response(server[0], client[1])
        body.cancel()


async def _copy_response(server: StreamReader, client: StreamWriter) -> None:
    while True:
        first, *lines = (await server.readuntil(_HEAD_END))[: -len(_HEAD_END)].split(b"\r\n")
        client.write(_join_head(first, lines))
        if not first.split(b" ")[1:2] or not first.split(b" ")[1].startswith(b"1"):
            break
    await _copy(server, client, None)


def _join_head(first: bytes, lines: list[bytes], own: Sequence[bytes] = ()) -> bytes:
    kept = [line for line in lines if not line.lower().startswith(_HOP_HEADERS)]
    return b"\r\n".join((first, *kept, *own, b"Connection: close", b"", b""))


async def _relay_both(reader: StreamReader, writer: StreamWriter, upstream: StreamReader, sender: StreamWriter) -> None:
    """Relay a tunnel until one side ends it."""
    async with asyncio.TaskGroup() as group:
        ways = [
            group.create_task(_copy(reader, sender, None)),
            group.create_task(_copy(upstream, writer, None)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()


async def _copy(source: StreamReader, target: StreamWriter, length: int | None) -> None:
    """Copy ``length`` bytes, or all there are."""
    with suppress(OSError):
        while length is None or length > 0:
            data = await source.read(_CHUNK if length is None else min(_CHUNK, length))
            if not data:
                break
            target.write(data)
            await target.drain()
            length = None if length is None else length - len(data)


def _answer(writer: StreamWriter, status: int, sentence: str) -> None:
    body = f"<!doctype html><title>Blocked</title><p>{escape(sentence)}</p>".encode()
    head = (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)


async def _hold(folder: BrowserFolder) -> None:
    """Run the browser until it ends, is ended, or is idle for too long."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await _run(folder, stop)
    finally:
        if folder.remove_marker.exists():
            await _remove(folder)


async def _remove(folder: BrowserFolder) -> None:
    """Delete the folder, the profile first: processes that the browser has left may still write to it for a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while folder.data.exists():
                shutil.rmtree(folder.data, ignore_errors=True)
                await asyncio.sleep(_POLL)
    shutil.rmtree(folder.path, ignore_errors=True)


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
            delete_singletons(folder.data)
            folder.write_state(None)


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
    port_file.unlink(missing_ok=True)
    delete_singletons(folder.data)
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
        delete_singletons(folder.data)
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
    while folder.path.exists():
        hosts.read()
        left = folder.used_at + hosts.options.idle_seconds - time.time()
        if left <= 0:
            return
        await asyncio.sleep(min(left, _CHECK_SECONDS))


async def _end(browser: Process) -> None:
    """End the browser so that it saves its profile; kill it and its children after a moment."""
    if browser.returncode is None:
        browser.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await browser.wait()
    if browser.returncode is None:
        kill_tree(browser.pid)
        await browser.wait()
    signal_all(list_process_tree(os.getpid()), signal.SIGKILL)  # all are the browser's, also those it started meanwhile


def _die_with_parent() -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(BrowserFolder(Path(sys.argv[1])))
