"""Network guard of the browser: pages and the agent can't reach this machine, its network and its files."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.tools.browser.agent_browser import AgentBrowser, find_ref, needs_chromium
from tests.tools.browser.website import Website

from talaria.core.errors import ToolFailed
from talaria.tools.browser.holder import GuardedProxy

pytestmark = needs_chromium


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "chrome://settings", "javascript:alert(1)", "view-source:http://example.com", "ftp://x/"],
)
async def test_schemes_other_than_http_are_refused(agent: AgentBrowser, url: str) -> None:
    with pytest.raises(ToolFailed, match="Only http and https"):
        await agent.open(url)


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "2130706433"])
async def test_private_addresses_are_refused(agent: AgentBrowser, host: str) -> None:
    with pytest.raises(ToolFailed, match="not a public address"):
        await agent.open(f"http://{host}/")


async def test_redirect_to_a_private_address_is_blocked(
    agent: AgentBrowser, site: Website, other_site: Website
) -> None:
    site.redirects["/away"] = other_site.url("/secret")
    shown = await agent.open(site.url("/away"))
    assert f"Blocked, not public: {other_site.host}" in shown
    assert other_site.seen == []


async def test_page_reaches_no_private_address(agent: AgentBrowser, site: Website, other_site: Website) -> None:
    page = await agent.open(site.page("/probe", f"""<img src="{other_site.url("/image")}"><iframe
        src="{other_site.url("/frame")}"></iframe><iframe src="file:///etc/passwd"></iframe>
        <button onclick="fetch('{other_site.url("/fetch")}', {{mode: 'no-cors'}}).catch(() => 0);
            navigator.sendBeacon('{other_site.url("/beacon")}'); new WebSocket('ws://{other_site.host}/socket')
            .onclose = () => document.title = 'closed'">Probe</button>"""))  # fmt: skip
    await agent.act("click", find_ref(page, 'button "Probe"'))
    assert "root:" not in page
    connection = await agent.browser.connect()
    await connection.page.wait_for_function("document.title === 'closed'")
    assert other_site.seen == []


async def test_name_that_resolves_to_a_private_address_is_blocked() -> None:
    """The proxy connects to the address that was checked, so a second answer of the name server changes nothing."""
    refused: list[str] = []
    async with GuardedProxy(frozenset, refused.append) as proxy:
        for request in ("CONNECT localhost:443 HTTP/1.1", "GET http://localhost/ HTTP/1.1"):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(f"{request}\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            writer.close()
    assert refused == ["localhost:443", "localhost:80"]


class UpstreamProxy:
    """A proxy of a company, the only one that knows ``shop.example``; it wants a password."""

    def __init__(self, site: Website) -> None:
        self._site = site
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        self.asked.append(f"{method} {target}")
        if "proxy-authorization: basic dTpw\r\n".lower() not in head.lower():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        elif "shop.example" not in target:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        else:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._site.port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
            far_writer.write(head.replace("http://shop.example", "", 1).encode())
            writer.write(await far_reader.read())
            far_writer.close()
        writer.close()


@asynccontextmanager
async def company_proxy(
    site: Website, monkeypatch: pytest.MonkeyPatch, login: str = "u:p"
) -> AsyncIterator[UpstreamProxy]:
    upstream = UpstreamProxy(site)
    async with await asyncio.start_server(upstream.serve, "127.0.0.1", 0) as server:
        address = f"http://{login}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, address)
        yield upstream


async def test_browser_goes_through_the_proxy_of_the_environment(
    new_agent: AgentBrowser, site: Website, other_site: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.page("/hello", f"<h1>Hello</h1><img src='{other_site.url('/image')}'>")
    async with company_proxy(site, monkeypatch) as upstream:
        agent = AgentBrowser(new_agent.root, new_agent.folder, new_agent.settings)  # with this environment
        try:
            shown = await agent.open("http://shop.example/hello")
        finally:
            await agent.close()
        assert "Hello" in shown
        assert f"Blocked, not public: {other_site.host}" in shown
    assert "GET http://shop.example/hello" in upstream.asked
    assert other_site.seen == []


async def test_addresses_are_checked_before_the_proxy_of_the_environment_is_used(
    site: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    async def ask(proxy: GuardedProxy, request: str, after: str = "") -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"{request} HTTP/1.1\r\n\r\n{after}".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return answer

    site.page("/hello", "<h1>Hello</h1>")
    async with company_proxy(site, monkeypatch) as upstream, GuardedProxy(frozenset, refused.append) as proxy:
        tunnel = await ask(proxy, "CONNECT shop.example:443", "GET /hello HTTP/1.0\r\n\r\n")
        assert tunnel.startswith("HTTP/1.1 200 Connected")
        assert "<h1>Hello</h1>" in tunnel
        hosts = ("10.0.0.1", "2130706433", "[::ffff:a9fe:a9fe]", "printer", "wiki.internal")
        for host in hosts:
            assert (await ask(proxy, f"CONNECT {host}:443")).startswith("HTTP/1.1 403 ")
        assert [name.rpartition(":")[0] for name in refused] == [host.strip("[]") for host in hosts]
        assert upstream.asked == ["CONNECT shop.example:443"]
        assert "the proxy 127.0.0.1:" in await ask(proxy, "CONNECT elsewhere.example:443")
    async with company_proxy(site, monkeypatch, "u:wrong"), GuardedProxy(frozenset, refused.append) as proxy:
        assert "answered 407" in await ask(proxy, "CONNECT shop.example:443")


async def test_proxy_connection_carries_one_request_only() -> None:
    """A server that keeps its connection open must not get a request to another server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        async with GuardedProxy(lambda: frozenset({host}), lambda _: None) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            headers = f"Host: {host}\r\nContent-Length: 2\r\nConnection: keep-alive"
            writer.write(f"POST http://{host}/a HTTP/1.1\r\n{headers}\r\n\r\nhi".encode())
            writer.write(b"GET http://other.example/secret HTTP/1.1\r\n\r\n")
            upstream, _ = await asyncio.to_thread(listener.accept)
            with upstream:
                received = await asyncio.to_thread(_read_until, upstream, b"hi")
                upstream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
                assert await reader.readuntil(b"\r\n\r\n") == (
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
                )
            assert received.startswith(b"POST /a HTTP/1.1\r\n")
            assert b"other.example" not in received
            writer.close()


def _read_until(upstream: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        received += upstream.recv(1)
    return received
