"""Connections of a pool: reuse of clean ones, TLS and proxies."""

import asyncio
import base64
import socket
import ssl
from pathlib import Path

import pytest
from tests.providers.raw_servers import (
    OK,
    ScriptedConnections,
    answering,
    certificate,
    fetch,
    proxy,
    read_request,
    serving,
)
from tests.providers.scripted_providers import PATIENT, pool

from talaria.core.errors import ProviderUnreachable
from talaria.http_client.client import HttpPool, load_trusted_certificates
from talaria.http_client.connection import read_url
from talaria.http_client.dial import find_route
from talaria.testing.wait import LIMIT

FIN_WAIT_2 = b"\x05"  # TCP state after the peer has acknowledged our FIN
CLOSING = OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


async def test_clean_connection_is_reused() -> None:
    server = ScriptedConnections([OK] * 3)
    async with serving(server.talk) as port, pool() as http:
        for _ in range(3):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert server.count == 1


@pytest.mark.parametrize("answer", [CLOSING, OK + b"and more", OK.replace(b"1.1", b"1.0"), OK + OK])
async def test_connection_with_extra_bytes_or_close_header_is_not_reused(answer: bytes) -> None:
    server = ScriptedConnections([answer, OK])
    async with serving(server.talk) as port, pool() as http:
        for _ in range(2):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert server.count == 2


async def test_pooled_connection_that_fails_before_an_answer_is_replaced_once() -> None:
    server = ScriptedConnections([OK, b""], [OK], [OK])
    async with serving(server.talk) as port, pool() as http:
        for _ in range(2):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert (server.count, len(server.requests)) == (2, 3)


async def test_pooled_connection_that_fails_within_its_answer_is_not_replaced() -> None:
    server = ScriptedConnections([OK, b"HTTP/1.1 200 OK\r\n"], [OK])
    async with serving(server.talk) as port, pool() as http:
        await fetch(http, f"http://127.0.0.1:{port}/")
        with pytest.raises(ProviderUnreachable):
            await fetch(http, f"http://127.0.0.1:{port}/")
    assert server.count == 1


async def test_connection_closed_by_the_server_is_not_reused() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(LIMIT)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def answer() -> socket.socket:
        peer, _ = listener.accept()
        peer.recv(65536)
        peer.sendall(OK)
        return peer

    async with pool() as http:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asyncio.to_thread(answer))
            group.create_task(fetch(http, url))
        with first.result() as peer:
            peer.shutdown(socket.SHUT_WR)
            while peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != FIN_WAIT_2:
                pass  # blocks the loop, so that it can't see what the client's side of the connection has received
            second = asyncio.ensure_future(asyncio.to_thread(answer))
            async with http.request("POST", url, b"{}", {}, PATIENT, repeats=False) as reply:
                assert await reply.body() == b"hello"
        (await second).close()
    listener.close()


async def test_failed_new_connection_is_not_retried() -> None:
    server = ScriptedConnections([b""])
    async with serving(server.talk) as port, pool() as http:
        with pytest.raises(ProviderUnreachable, match="closed the connection"):
            await fetch(http, f"http://127.0.0.1:{port}/")
    assert server.count == 1


async def test_all_addresses_of_a_host_are_tried_until_one_answers() -> None:
    async with serving(answering(OK)) as port, pool() as http:
        assert await fetch(http, f"http://localhost:{port}/") == (200, b"hello")
    async with pool() as http:
        with pytest.raises(ProviderUnreachable, match="doesn't answer"):
            await fetch(http, "http://localhost:9/")


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
async def test_server_is_reachable_by_its_ipv6_address() -> None:
    received: list[str] = []
    async with serving(answering(OK, requests=received), host="::1") as port, pool() as http:
        assert await fetch(http, f"http://[::1]:{port}/") == (200, b"hello")
    assert f"Host: [::1]:{port}" in received[0].splitlines()


async def test_unread_response_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
        try:
            await reader.read()
        finally:
            closed.set()

    async with serving(talk) as port, pool() as http:
        async with http.get(f"http://127.0.0.1:{port}/", {}, PATIENT):
            pass
        async with asyncio.timeout(LIMIT):
            await closed.wait()


async def test_request_has_encoded_path_host_and_basic_authorization() -> None:
    received: list[str] = []
    async with serving(answering(OK, requests=received)) as port, pool() as http:
        await fetch(http, f"http://me:pass%20word@127.0.0.1:{port}/a b?q=ü#part")
    lines = received[0].splitlines()
    assert lines[0] == "POST /a%20b?q=%C3%BC HTTP/1.1"
    login = base64.b64encode(b"me:pass word").decode()
    for line in (f"Host: 127.0.0.1:{port}", "Accept-Encoding: identity", f"Authorization: Basic {login}"):
        assert lines.count(line) == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://Model.test:80/", "model.test"),
        ("https://model.test:8443/", "model.test:8443"),
        ("https://[2001:db8::1]/", "[2001:db8::1]"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://bücher.test/", "xn--bcher-kva.test"),
    ],
)
def test_host_header_omits_default_port_and_encodes_names(url: str, name: str) -> None:
    assert read_url(url)[0].name == name


async def test_tls_trusts_the_configured_certificates(tmp_path: Path) -> None:
    context, cert = certificate(tmp_path)
    server = ScriptedConnections([OK] * 2)
    async with serving(server.talk, context) as port:
        http = HttpPool(ssl.create_default_context(cafile=cert))
        for _ in range(2):
            assert await fetch(http, f"https://127.0.0.1:{port}/") == (200, b"hello")
        await http.close()
    assert server.count == 1


async def test_tls_trusts_certificates_named_by_ssl_cert_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, cert = certificate(tmp_path)
    async with serving(answering(OK), context) as port, pool() as http:
        with pytest.raises(ProviderUnreachable, match=r"(?i)certificate"):
            await fetch(http, f"https://127.0.0.1:{port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        async with pool() as trusting:
            assert await fetch(trusting, f"https://127.0.0.1:{port}/") == (200, b"hello")


def test_trusted_certificates_are_loaded_once_for_all_pools() -> None:
    paths = ssl.get_default_verify_paths()
    assert load_trusted_certificates(paths) is load_trusted_certificates(ssl.get_default_verify_paths())
    assert load_trusted_certificates(paths).verify_mode is ssl.CERT_REQUIRED


async def test_tls_rejects_a_certificate_for_another_host(tmp_path: Path) -> None:
    context, cert = certificate(tmp_path)
    async with serving(answering(OK), context) as port:
        http = HttpPool(ssl.create_default_context(cafile=cert))
        with pytest.raises(ProviderUnreachable, match=r"(?i)certificate"):
            await fetch(http, f"https://localhost:{port}/")
        await http.close()


async def test_http_requests_are_sent_to_the_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    proxied: list[str] = []
    async with serving(answering(OK)) as port, serving(proxy(port, proxied)) as proxy_port, pool() as http:
        no_proxies.setenv("http_proxy", f"http://me:secret@127.0.0.1:{proxy_port}")
        assert await fetch(http, "http://model.test/v1?q=1") == (200, b"hello")
    lines = proxied[0].splitlines()
    assert lines[0] == "POST http://model.test/v1?q=1 HTTP/1.1"
    assert "Host: model.test" in lines
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}" in lines


async def test_https_requests_use_a_connect_tunnel(tmp_path: Path, no_proxies: pytest.MonkeyPatch) -> None:
    context, cert = certificate(tmp_path)
    proxied: list[str] = []
    received: list[str] = []
    server = answering(OK, OK, requests=received)
    async with serving(server, context) as port, serving(proxy(port, proxied)) as proxy_port:
        no_proxies.setenv("https_proxy", f"127.0.0.1:{proxy_port}")
        http = HttpPool(ssl.create_default_context(cafile=cert))
        for _ in range(2):
            assert await fetch(http, "https://model.test/v1") == (200, b"hello")
        await http.close()
    assert [head.splitlines()[0] for head in proxied] == ["CONNECT model.test:443 HTTP/1.1"]
    assert [head.splitlines()[0] for head in received] == ["POST /v1 HTTP/1.1"] * 2
    assert "Proxy-Authorization" not in received[0]


async def test_refusal_of_a_proxy_is_reported(no_proxies: pytest.MonkeyPatch) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusal)) as proxy_port, pool() as http:
        no_proxies.setenv("https_proxy", f"http://127.0.0.1:{proxy_port}")
        with pytest.raises(ProviderUnreachable, match="407"):
            await fetch(http, "https://model.test/")


def test_no_proxy_hosts_and_loopback_bypass_the_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "http://proxy.test:3128")
    no_proxies.setenv("no_proxy", "near.test")
    routes = {
        url: find_route(read_url(url)[0]).proxy for url in ("http://far.test", "http://near.test", "http://[::1]:1")
    }
    assert [route.authority if route else None for route in routes.values()] == ["proxy.test:3128", None, None]


async def test_socks_proxy_is_reported_as_unsupported(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "socks5://127.0.0.1:9")
    async with pool() as http:
        with pytest.raises(ProviderUnreachable, match="http"):
            await fetch(http, "http://model.test/")
