"""SSRF guard: addresses that the model can't reach."""

import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest
from tests.providers.raw_servers import answering, proxy, serving
from tests.tools.web.web_server import WebServer, web_server

from talaria.core.errors import ToolFailed
from talaria.http_client.dial import SocketAddress, is_public
from talaria.tools.web.fetch import WebClient


class Names:
    """Name server that returns its answers in order."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)

    async def resolve(self, host: str, port: int) -> list[SocketAddress]:
        if not self._answers:
            raise socket.gaierror("the name is unknown")
        address = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [(socket.AF_INET, (address, port))]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        served.serve("/secret", "secret", "text/plain")
        yield served


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1",
        "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "::127.0.0.1",
    ],
)  # fmt: skip
def test_private_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101"])
def test_global_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "0"]
)
async def test_loopback_is_refused_in_any_notation(server: WebServer, host: str) -> None:
    client = WebClient()
    with pytest.raises(ToolFailed):
        await client.get(f"http://{host}:{server.port}/secret")
    await client.close()
    assert server.requests == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/", "gopher://x", "//", "http://", "data:,x"])
async def test_only_http_urls_are_fetched(url: str) -> None:
    with pytest.raises(ToolFailed):
        await WebClient().get(url)


async def test_a_redirect_to_a_private_address_is_not_followed(server: WebServer) -> None:
    client = WebClient(allowed={f"public.test:{server.port}"}, resolve=Names("127.0.0.1").resolve)
    server.redirect("/away", f"http://127.0.0.1:{server.port}/secret")
    server.redirect("/file", "file:///etc/passwd")
    server.redirect("/name", f"http://other.test:{server.port}/secret")
    for path in ("/away", "/file", "/name"):
        with pytest.raises(ToolFailed, match=r"public address|only http"):
            await client.get(f"http://public.test:{server.port}{path}")
    await client.close()
    assert [request.path for request in server.requests] == ["/away", "/file", "/name"]


async def test_dns_rebinding_does_not_reach_a_private_address(server: WebServer) -> None:
    client = WebClient(resolve=Names("127.0.0.1", "93.184.215.14").resolve)
    with pytest.raises(ToolFailed, match=r"rebind\.test is not a public address"):
        await client.get(f"http://rebind.test:{server.port}/secret")
    await client.close()
    assert server.requests == []


async def test_other_ports_of_an_allowed_host_are_refused(server: WebServer) -> None:
    client = WebClient(allowed={"127.0.0.1:1"})
    with pytest.raises(ToolFailed, match="public address"):
        await client.get(server.url("/secret"))
    await client.close()


async def test_pages_are_fetched_through_the_environment_proxy(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy has a private address, resolves an otherwise unknown name, and is not used for no_proxy hosts."""
    proxied: list[str] = []
    async with serving(proxy(server.port, proxied)) as port:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "near.test")
        client = WebClient(resolve=Names().resolve)
        assert (await client.get("http://shop.example/secret")).body == b"secret"
        with pytest.raises(ToolFailed, match="name can't be resolved"):
            await client.get("http://near.test/secret")
        await client.close()
    (head,) = proxied
    assert head.startswith("GET http://shop.example/secret HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in head
    (request,) = server.requests
    assert request.headers["Host"] == "shop.example"


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "2130706433", "[::ffff:a9fe:a9fe]", "printer", "printer.", "wiki.internal", "wiki.internal."]
)
async def test_proxy_is_not_used_for_private_hosts(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    proxied: list[str] = []
    async with serving(proxy(server.port, proxied)) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        client = WebClient(resolve=Names().resolve)
        for scheme in ("http", "https"):
            with pytest.raises(ToolFailed, match=r"not a public address|private network"):
                await client.get(f"{scheme}://{host}/secret")
        await client.close()
    assert proxied == []


async def test_name_that_resolves_to_a_private_address_is_not_sent_to_a_proxy(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied: list[str] = []
    async with serving(proxy(server.port, proxied)) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        client = WebClient(resolve=Names("93.184.215.14", "10.0.0.1").resolve)
        server.redirect("/away", "http://inside.example/secret")
        with pytest.raises(ToolFailed, match=r"inside\.example is not a public address"):
            await client.get("http://outside.example/away")
        await client.close()
    assert [head.splitlines()[0] for head in proxied] == ["GET http://outside.example/away HTTP/1.1"]


async def test_failing_proxy_is_reported_with_the_variable_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answering(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        client = WebClient(resolve=Names().resolve)
        with pytest.raises(ToolFailed, match=rf"the proxy 127\.0\.0\.1:{port} answered 407\. Check HTTPS_PROXY"):
            await client.get("https://shop.example/")
        monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:9")
        with pytest.raises(ToolFailed, match="only HTTP proxies work"):
            await client.get("https://other.example/")
        await client.close()
