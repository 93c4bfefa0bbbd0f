"""Connections are used again when they are clean, and lead through proxies and TLS where they must."""

import asyncio
import base64
import socket
import ssl
from pathlib import Path

import pytest
from tests.providers.raw_servers import OK, Counted, answering, certificate, fetch, proxy, read_request, serving
from tests.providers.scripted_providers import PATIENT, pool

from talaria.core.errors import ProviderUnreachable
from talaria.http_client.client import HttpPool, load_trusted_certificates
from talaria.http_client.connection import read_url
from talaria.http_client.dial import find_route
from talaria.testing.wait import LIMIT

FIN_WAIT_2 = b"\x05"  # of a socket whose other side has received the end
CLOSING = OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


async def test_a_clean_connection_serves_again() -> None:
    server = Counted([OK] * 3)
    async with serving(server.talk) as port, pool() as http:
        for _ in range(3):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert server.count == 1


@pytest.mark.parametrize("answer", [CLOSING, OK + b"and more", OK.replace(b"1.1", b"1.0"), OK + OK])
async def test_a_connection_that_is_not_clean_serves_once(answer: bytes) -> None:
    server = Counted([answer, OK])
    async with serving(server.talk) as port, pool() as http:
        for _ in range(2):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert server.count == 2


async def test_a_kept_connection_that_fails_unanswered_is_replaced_once() -> None:
    server = Counted([OK, b""], [OK], [OK])
    async with serving(server.talk) as port, pool() as http:
        for _ in range(2):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")
    assert (server.count, len(server.heard)) == (2, 3)


async def test_a_kept_connection_that_fails_within_its_answer_is_not_replaced() -> None:
    server = Counted([OK, b"HTTP/1.1 200 OK\r\n"], [OK])
    async with serving(server.talk) as port, pool() as http:
        await fetch(http, f"http://127.0.0.1:{port}/")
        with pytest.raises(ProviderUnreachable):
            await fetch(http, f"http://127.0.0.1:{port}/")
    assert server.count == 1


async def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
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


async def test_a_new_connection_that_fails_is_not_tried_again() -> None:
    server = Counted([b""])
    async with serving(server.talk) as port, pool() as http:
        with pytest.raises(ProviderUnreachable, match="closed the connection"):
            await fetch(http, f"http://127.0.0.1:{port}/")
    assert server.count == 1


async def test_a_name_with_several_addresses_is_tried_until_one_answers() -> None:
    async with serving(answering(OK)) as port, pool() as http:
        assert await fetch(http, f"http://localhost:{port}/") == (200, b"hello")
    async with pool() as http:
        with pytest.raises(ProviderUnreachable, match="doesn't answer"):
            await fetch(http, "http://localhost:9/")


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
async def test_a_server_may_be_named_by_its_ipv6_address() -> None:
    heard: list[str] = []
    async with serving(answering(OK, heard=heard), host="::1") as port, pool() as http:
        assert await fetch(http, f"http://[::1]:{port}/") == (200, b"hello")
    assert f"Host: [::1]:{port}" in heard[0].splitlines()


async def test_leaving_before_the_end_closes_the_connection() -> None:
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


async def test_a_request_says_where_it_goes() -> None:
    heard: list[str] = []
    async with serving(answering(OK, heard=heard)) as port, pool() as http:
        await fetch(http, f"http://me:pass%20word@127.0.0.1:{port}/a b?q=ü#part")
    lines = heard[0].splitlines()
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
def test_a_host_is_named_as_its_server_expects(url: str, name: str) -> None:
    assert read_url(url)[0].name == name


async def test_tls_trusts_the_configured_certificates(tmp_path: Path) -> None:
    shown, cert = certificate(tmp_path)
    server = Counted([OK] * 2)
    async with serving(server.talk, shown) as port:
        http = HttpPool(ssl.create_default_context(cafile=cert))
        for _ in range(2):
            assert await fetch(http, f"https://127.0.0.1:{port}/") == (200, b"hello")
        await http.close()
    assert server.count == 1


async def test_tls_trusts_whom_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, cert = certificate(tmp_path)
    async with serving(answering(OK), shown) as port, pool() as http:
        with pytest.raises(ProviderUnreachable, match=r"(?i)certificate"):
            await fetch(http, f"https://127.0.0.1:{port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        async with pool() as informed:
            assert await fetch(informed, f"https://127.0.0.1:{port}/") == (200, b"hello")


def test_trusted_certificates_are_loaded_once_for_all_pools() -> None:
    paths = ssl.get_default_verify_paths()
    assert load_trusted_certificates(paths) is load_trusted_certificates(ssl.get_default_verify_paths())
    assert load_trusted_certificates(paths).verify_mode is ssl.CERT_REQUIRED


async def test_tls_wants_the_right_name(tmp_path: Path) -> None:
    shown, cert = certificate(tmp_path)
    async with serving(answering(OK), shown) as port:
        http = HttpPool(ssl.create_default_context(cafile=cert))
        with pytest.raises(ProviderUnreachable, match=r"(?i)certificate"):
            await fetch(http, f"https://localhost:{port}/")
        await http.close()


async def test_plain_requests_are_handed_to_the_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    async with serving(answering(OK)) as port, serving(proxy(port, asked)) as way, pool() as http:
        no_proxies.setenv("http_proxy", f"http://me:secret@127.0.0.1:{way}")
        assert await fetch(http, "http://model.test/v1?q=1") == (200, b"hello")
    lines = asked[0].splitlines()
    assert lines[0] == "POST http://model.test/v1?q=1 HTTP/1.1"
    assert "Host: model.test" in lines
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}" in lines


async def test_secure_requests_go_through_a_tunnel(tmp_path: Path, no_proxies: pytest.MonkeyPatch) -> None:
    shown, cert = certificate(tmp_path)
    asked: list[str] = []
    heard: list[str] = []
    server = answering(OK, OK, heard=heard)
    async with serving(server, shown) as port, serving(proxy(port, asked)) as way:
        no_proxies.setenv("https_proxy", f"127.0.0.1:{way}")
        http = HttpPool(ssl.create_default_context(cafile=cert))
        for _ in range(2):
            assert await fetch(http, "https://model.test/v1") == (200, b"hello")
        await http.close()
    assert [head.splitlines()[0] for head in asked] == ["CONNECT model.test:443 HTTP/1.1"]
    assert [head.splitlines()[0] for head in heard] == ["POST /v1 HTTP/1.1"] * 2
    assert "Proxy-Authorization" not in heard[0]


async def test_a_proxy_may_refuse(no_proxies: pytest.MonkeyPatch) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusal)) as way, pool() as http:
        no_proxies.setenv("https_proxy", f"http://127.0.0.1:{way}")
        with pytest.raises(ProviderUnreachable, match="407"):
            await fetch(http, "https://model.test/")


def test_who_is_excepted_needs_no_proxy(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "http://proxy.test:3128")
    no_proxies.setenv("no_proxy", "near.test")
    ways = {
        url: find_route(read_url(url)[0]).proxy for url in ("http://far.test", "http://near.test", "http://[::1]:1")
    }
    assert [way.authority if way else None for way in ways.values()] == ["proxy.test:3128", None, None]


async def test_a_proxy_of_another_kind_is_said_to_be_of_no_use(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "socks5://127.0.0.1:9")
    async with pool() as http:
        with pytest.raises(ProviderUnreachable, match="http"):
            await fetch(http, "http://model.test/")
