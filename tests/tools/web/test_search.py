"""Search engines, as they answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from
from tests.tools.web.web_server import WebServer, web_server

from talaria.contracts.tool import Tool
from talaria.core.errors import ToolFailed
from talaria.tools.web.search import DuckDuckGo, SearchEngine, SearchResult, SearXng, WebSearch, WebSearchArguments

LISTING = """<html><body><div id="links" class="results">
<div class="result results_links results_links_deep result--ad"><h2 class="result__title">
 <a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=shop.test">Buy bread</a></h2></div>
<div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
 <h2 class="result__title"><a rel="nofollow" class="result__a"
  href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fbread.test%2Frye%3Fa%3D1%26b%3D2&amp;rut=0">Rye <b>bread</b></a></h2>
 <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">How to bake <b>rye</b>
  bread.</a></div></div>
<div class="result web-result"><h2><a class="result__a" href="https://bread.test/wheat">Wheat</a></h2></div>
<div class="result web-result"><h2><a class="result__a" href="javascript:x()">Odd</a></h2></div>
<div class="result result--no-result"><span>No more results.</span></div>
</div></body></html>"""


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        yield served


async def search(engine: SearchEngine, query: str, count: int = 8) -> str:
    closing = WebSearch(engine)
    tool: Tool = closing
    try:
        return (await tool.run(WebSearchArguments(query, count), call_from(Path()))).text
    finally:
        await closing.close()


async def test_duckduckgo_needs_no_key(server: WebServer) -> None:
    engine = DuckDuckGo(server.serve("/html/", LISTING))
    assert await search(engine, "rye & bread") == (
        "1. Rye bread\nhttps://bread.test/rye?a=1&b=2\nHow to bake rye bread.\n\n2. Wheat\nhttps://bread.test/wheat"
    )
    assert server.requests[0].query["q"] == "rye & bread"


async def test_no_more_results_than_wanted(server: WebServer) -> None:
    engine = DuckDuckGo(server.serve("/html/", LISTING))
    assert len(await engine.search("bread", 1)) == 1
    await engine.close()


async def test_an_engine_that_wants_to_see_a_human_is_reported(server: WebServer) -> None:
    engine = DuckDuckGo(server.serve("/html/", '<form id="challenge-form"></form>'))
    with pytest.raises(ToolFailed, match="captcha"):
        await search(engine, "bread")


async def test_nothing_found_is_said(server: WebServer) -> None:
    assert await search(DuckDuckGo(server.serve("/html/", "<html></html>")), "bread") == "Nothing found."


async def test_searxng_answers_in_json(server: WebServer) -> None:
    server.serve(
        "/search",
        '{"query": "x", "results": [{"title": "Rye", "url": "https://bread.test/", "content": null, "score": 1}]}',
        "application/json",
    )
    engine = SearXng(server.url("/"))
    assert await engine.search("rye", 5) == [SearchResult("Rye", "https://bread.test/", "")]
    assert dict(server.requests[0].query) == {"q": "rye", "format": "json"}
    server.serve("/search", "<html>", "text/html")
    with pytest.raises(ToolFailed, match="JSON"):
        await engine.search("rye", 5)
    await engine.close()
