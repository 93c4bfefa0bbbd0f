"""Rules of robots.txt (RFC 9309) and the pages that they forbid."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.tools.tool_calls import call_from
from tests.tools.web.web_server import WebServer, web_server

from talaria.core.errors import ToolFailed
from talaria.tools.web.fetch import WebClient, WebFetch, WebFetchArguments
from talaria.tools.web.http_client import parse_robots


@pytest.mark.parametrize(
    ("robots", "path", "allowed"),
    [
        ("", "/a", True),
        ("User-agent: *\nDisallow: /", "/a", False),
        ("User-agent: *\nDisallow:", "/a", True),
        ("User-agent: *\nDisallow: /private", "/private/x", False),
        ("User-agent: *\nDisallow: /private", "/public", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("User-agent: *\nAllow: /a\nDisallow: /a", "/a", True),
        ("User-agent: *\nDisallow: /\n\nUser-agent: Talaria\nAllow: /", "/a", True),
        ("User-agent: talaria\nUser-agent: other\nDisallow: /x # secret\n\nUser-agent: *\nDisallow: /", "/x", False),
        ("User-agent: other\nDisallow: /", "/a", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/docs/a.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/docs/a.pdf?x=1", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf.pdf", False),
        ("User-agent: *\nDisallow: /a$", "/ab", True),
        ("User-agent: *\nDisallow: /*?sort=", "/list?sort=up", False),
        ("User-agent: *\nDisallow: /f%C3%BC", "/fü/r", False),
        ("\ufeffuser-AGENT : *\r\nDISALLOW : /a\r\nSitemap: https://a.test/s.xml", "/a", False),
        ("nonsense\nDisallow: /a", "/a", True),
        ("User-agent: *\nDisallow: /" + "*a" * 5_000 + "$", "/" + "a" * 3_000, True),
    ],
)
def test_longest_matching_robots_rule_applies(robots: str, path: str, allowed: bool) -> None:
    assert parse_robots(robots).is_allowed(f"https://a.test{path}") is allowed


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        yield served


async def read(tool: WebFetch, url: str) -> str:
    return (await tool.run(WebFetchArguments(url), call_from(Path()))).text


@pytest.fixture
async def tool(server: WebServer) -> AsyncIterator[WebFetch]:
    tool = WebFetch(WebClient(allowed={server.authority}), robots=True)
    yield tool
    await tool.close()


async def test_forbidden_pages_are_not_fetched_and_robots_txt_is_read_once(server: WebServer, tool: WebFetch) -> None:
    server.serve("/robots.txt", "User-agent: *\nDisallow: /private\n", "text/plain")
    server.serve("/private/a", "secret", "text/plain")
    for path in ("/a", "/b"):
        assert await read(tool, server.serve(path, "open", "text/plain")) == "open"
    with pytest.raises(ToolFailed, match=r"robots\.txt doesn't allow programs to fetch http://.*/private/a"):
        await read(tool, server.url("/private/a"))
    with pytest.raises(ToolFailed, match="robots"):
        await read(tool, server.redirect("/away", "/private/a"))
    assert [request.path for request in server.requests] == ["/robots.txt", "/a", "/b", "/away"]


@pytest.mark.parametrize("status", [404, 403, 401, 429])
async def test_site_without_robots_txt_allows_all_pages(server: WebServer, tool: WebFetch, status: int) -> None:
    server.fail("/robots.txt", status)
    assert await read(tool, server.serve("/a", "open", "text/plain")) == "open"


async def test_site_with_a_redirect_loop_for_robots_txt_allows_all_pages(server: WebServer, tool: WebFetch) -> None:
    server.redirect("/robots.txt", "/robots.txt")
    assert await read(tool, server.serve("/a", "open", "text/plain")) == "open"


@pytest.mark.parametrize("status", [500, 503])
async def test_site_whose_robots_txt_fails_forbids_all_pages_until_it_works(
    server: WebServer, tool: WebFetch, status: int
) -> None:
    server.fail("/robots.txt", status)
    url = server.serve("/a", "open", "text/plain")
    with pytest.raises(ToolFailed, match=rf"rules for programs can't be read: .*/robots\.txt answered {status}.*later"):
        await read(tool, url)
    assert [request.path for request in server.requests] == ["/robots.txt"]
    server.serve("/robots.txt", "User-agent: *\nDisallow: /private\n", "text/plain")
    assert await read(tool, url) == "open"


async def test_unreachable_robots_txt_forbids_all_pages(server: WebServer) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.handle("/robots.txt", hang_up)
    tool = WebFetch(WebClient(allowed={server.authority}), robots=True)
    with pytest.raises(ToolFailed, match="rules for programs can't be read: can't fetch"):
        await read(tool, server.serve("/a", "open", "text/plain"))
    await tool.close()


async def test_private_addresses_are_refused_before_robots_txt_is_read(server: WebServer) -> None:
    tool = WebFetch(WebClient(), robots=True)
    with pytest.raises(ToolFailed, match="is not a public address"):
        await read(tool, server.url("/a"))
    await tool.close()
    assert server.requests == []


async def test_robots_txt_is_ignored_if_the_setting_is_off(server: WebServer) -> None:
    server.serve("/robots.txt", "User-agent: *\nDisallow: /\n", "text/plain")
    tool = WebFetch(WebClient(allowed={server.authority}))
    assert await read(tool, server.serve("/a", "open", "text/plain")) == "open"
    assert len(server.requests) == 1
    await tool.close()
