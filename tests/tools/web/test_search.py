"""Search tool: requests to each engine, fallback between engines, and the cache."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from tests.tools.tool_calls import call_from
from tests.tools.web.engine_servers import CAPTCHA, KEY, URL, VENDORS, SearchServers, search_servers

from talaria.core.errors import ToolFailed
from talaria.settings.secrets import KNOWN_SECRETS
from talaria.settings.sections.tools import SEARCH_ENGINES
from talaria.testing.clock import SettableClock
from talaria.tools.web.engines import ENGINES
from talaria.tools.web.search import (
    EngineAccount,
    EngineFailed,
    SearchChain,
    SearchOptions,
    SearchResult,
    WebSearch,
    WebSearchArguments,
)

KEYED = [name for name, engine in ENGINES.items() if engine.key_names]


@pytest.fixture
async def servers() -> AsyncIterator[SearchServers]:
    async with search_servers() as running:
        yield running


@pytest.fixture
async def opened() -> AsyncIterator[list[SearchChain]]:
    chains: list[SearchChain] = []
    yield chains
    for chain in chains:
        await chain.close()


def chain_of(
    opened: list[SearchChain],
    *accounts: EngineAccount,
    options: SearchOptions | None = None,
    clock: SettableClock | None = None,
) -> SearchChain:
    chain = SearchChain(lambda: accounts, options, clock or SettableClock())
    opened.append(chain)
    return chain


async def search(chain: SearchChain, query: str, count: int = 8) -> str:
    return (await WebSearch(chain).run(WebSearchArguments(query, count), call_from(Path()))).text


def fail(status: int, text: str = "", **headers: str) -> web.Response:
    return web.Response(
        status=status, text=text, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_settings_and_secrets_include_every_engine() -> None:
    assert tuple(ENGINES) == SEARCH_ENGINES == tuple(VENDORS)
    known = {secret.name for secret in KNOWN_SECRETS}
    assert {name for engine in ENGINES.values() for name in engine.key_names} <= known
    assert all(engine.url.startswith("https://") for engine in ENGINES.values() if engine.name != "searxng")


@pytest.mark.parametrize("name", SEARCH_ENGINES)
async def test_request_follows_the_api_of_its_engine(
    servers: SearchServers, opened: list[SearchChain], name: str
) -> None:
    found = await chain_of(opened).ask(servers.account(name), "rye & bread", 20)
    date = "" if name == "duckduckgo" else "2026-02-03"
    assert found[0] == SearchResult("Rye bread", URL, "How to bake rye bread & more.", date)
    assert [result.url for result in found] == [URL, "https://bread.test/wheat"]
    assert servers.queries == ["rye & bread"]


@pytest.mark.parametrize("name", SEARCH_ENGINES)
async def test_number_of_results_is_limited_as_requested(
    servers: SearchServers, opened: list[SearchChain], name: str
) -> None:
    assert len(await chain_of(opened).ask(servers.account(name), "rye", 1)) == 1


@pytest.mark.parametrize("name", SEARCH_ENGINES)
async def test_search_without_results_returns_an_empty_list(
    servers: SearchServers, opened: list[SearchChain], name: str
) -> None:
    assert await chain_of(opened).ask(servers.account(name), "nothing", 8) == []


@pytest.mark.parametrize("name", KEYED)
async def test_rejected_key_is_reported_by_its_name(
    servers: SearchServers, opened: list[SearchChain], name: str
) -> None:
    with pytest.raises(EngineFailed, match=f"it rejected {ENGINES[name].key_names[0]}") as failed:
        await chain_of(opened).ask(servers.account(name, "wrong-key-987654"), "rye", 8)
    assert failed.value.outcome == "refused"
    assert "wrong-key" not in str(failed.value)


@pytest.mark.parametrize("name", SEARCH_ENGINES)
async def test_missing_key_or_address_is_reported_by_its_setting(opened: list[SearchChain], name: str) -> None:
    if name == "duckduckgo":
        return
    with pytest.raises(EngineFailed, match=r"no key \(set [A-Z_]+\)|no address \(set web\.addresses\.searxng\)"):
        await chain_of(opened).ask(EngineAccount(name), "rye", 8)


async def test_google_needs_the_id_of_a_search_engine(opened: list[SearchChain]) -> None:
    with pytest.raises(EngineFailed, match=r"web\.google_engine_id"):
        await chain_of(opened).ask(EngineAccount("google", KEY), "rye", 8)


@pytest.mark.parametrize("name", [name for name in SEARCH_ENGINES if name != "duckduckgo"])
async def test_broken_json_is_reported(servers: SearchServers, opened: list[SearchChain], name: str) -> None:
    for text in (
        '{"results": [',
        "<html>maintenance</html>",
        '{"results": 1, "organic": 1, "web": 1, "data": 1, "items": 1}',
    ):
        servers.override[name] = partial(web.Response, text=text)
        with pytest.raises(EngineFailed, match="its answer can't be read"):
            await chain_of(opened).ask(servers.account(name), "rye", 8)


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (402, "", "out of credit"),
        (432, "", "out of credit"),
        (400, '{"message":"Not enough credits","statusCode":400}', "out of credit"),
        (500, "", "HTTP 500"),
        (302, "", "HTTP 302"),
    ],
)
async def test_exhausted_credit_and_other_http_errors_are_reported(
    servers: SearchServers, opened: list[SearchChain], status: int, text: str, reason: str
) -> None:
    servers.override["serper"] = lambda: fail(status, text, Location="http://127.0.0.1:1/")
    with pytest.raises(EngineFailed, match=reason):
        await chain_of(opened).ask(servers.account("serper"), "rye", 8)


async def test_captcha_counts_as_blocked_with_any_status(servers: SearchServers, opened: list[SearchChain]) -> None:
    for status in (200, 202):
        servers.override["duckduckgo"] = partial(web.Response, status=status, text=CAPTCHA, content_type="text/html")
        with pytest.raises(EngineFailed, match="blocked: it asks for a captcha"):
            await chain_of(opened).ask(servers.account("duckduckgo"), "rye", 8)


async def test_searxng_server_without_json_is_reported_with_the_setting_to_change(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    servers.override["searxng"] = lambda: fail(403, "<h1>Forbidden</h1>")
    with pytest.raises(EngineFailed, match=r"`search\.formats` of its settings needs `json`"):
        await chain_of(opened).ask(servers.account("searxng"), "rye", 8)


async def test_next_engine_answers_if_one_fails(servers: SearchServers, opened: list[SearchChain]) -> None:
    servers.override |= {"tavily": lambda: fail(429, Retry_After="40"), "exa": lambda: fail(503)}
    dead = EngineAccount("kagi", KEY, "http://127.0.0.1:1")
    names = ("tavily", "exa", "duckduckgo")
    chain = chain_of(opened, EngineAccount("brave"), dead, *map(servers.account, names))
    assert await search(chain, "rye", 1) == (
        "Results from DuckDuckGo (skipped Brave: no key (set BRAVE_API_KEY); Kagi: not reachable: the connection was "
        "refused; Tavily: rate-limited; Exa: HTTP 503):\n\n"
        f"1. Rye bread\n{URL}\nHow to bake rye bread & more."
    )
    assert servers.called == ["tavily", "exa", "duckduckgo"]


async def test_results_have_title_address_date_and_snippet(servers: SearchServers, opened: list[SearchChain]) -> None:
    assert await search(chain_of(opened, servers.account("brave")), "rye") == (
        f"Results from Brave:\n\n1. Rye bread\n{URL}\n2026-02-03 · How to bake rye bread & more.\n\n"
        "2. Wheat\nhttps://bread.test/wheat\n2 days ago"
    )


async def test_rate_limited_engine_is_skipped_for_its_retry_after_time(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    clock = SettableClock()
    servers.override["brave"] = lambda: fail(429, Retry_After="40")
    chain = chain_of(opened, servers.account("brave"), servers.account("tavily"), clock=clock)
    await search(chain, "one")
    assert "Brave: rate-limited, not asked again for 40 s" in await search(chain, "two")
    assert servers.called == ["brave", "tavily", "tavily"]
    del servers.override["brave"]
    clock.advance(timedelta(seconds=41))
    assert (await search(chain, "three")).startswith("Results from Brave:")


async def test_retry_after_is_limited_and_invalid_values_are_ignored(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    for value, seconds in {"86400": 3600, "Wed, 21 Oct 2026 07:28:00 GMT": 60, "nan": 60, "-3": 60}.items():
        servers.override["brave"] = partial(fail, 429, Retry_After=value)
        with pytest.raises(EngineFailed) as failed:
            await chain_of(opened).ask(servers.account("brave"), "rye", 8)
        assert failed.value.pause == timedelta(seconds=seconds)
    servers.override["brave"] = lambda: fail(429, X_RateLimit_Reset="7, 1419704")
    with pytest.raises(EngineFailed) as failed:
        await chain_of(opened).ask(servers.account("brave"), "rye", 8)
    assert failed.value.pause == timedelta(seconds=7)


async def test_engine_with_a_new_key_is_used_at_once(servers: SearchServers, opened: list[SearchChain]) -> None:
    accounts = [servers.account("brave", "wrong-key")]
    chain = SearchChain(lambda: accounts, clock=SettableClock())
    opened.append(chain)
    with pytest.raises(ToolFailed, match="it rejected BRAVE_API_KEY"):
        await search(chain, "rye")
    accounts[0] = servers.account("brave")
    assert (await search(chain, "rye")).startswith("Results from Brave:")


@pytest.mark.slow
async def test_hanging_engine_is_skipped_after_the_time_limit(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        slow = EngineAccount("brave", KEY, f"http://127.0.0.1:{port}")
        chain = chain_of(opened, slow, servers.account("tavily"), options=SearchOptions(seconds=3))
        answer = await search(chain, "rye")
        await chain.close()
    assert "skipped Brave: no answer within 3 s" in answer


async def test_search_without_results_names_the_engines_used(servers: SearchServers, opened: list[SearchChain]) -> None:
    servers.override["exa"] = lambda: fail(500)
    chain = chain_of(opened, servers.account("brave"), servers.account("exa"))
    assert await search(chain, "nothing") == "Nothing found (Brave: no results; Exa: HTTP 500)."


async def test_search_fails_with_advice_if_no_engine_answers(servers: SearchServers, opened: list[SearchChain]) -> None:
    servers.override["brave"] = lambda: fail(500)
    with pytest.raises(ToolFailed, match=r"no search engine answered \(Brave: HTTP 500\).*talaria setup tools"):
        await search(chain_of(opened, servers.account("brave")), "rye")


async def test_repeated_search_is_answered_from_the_cache_until_it_expires(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    clock = SettableClock()
    chain = chain_of(opened, servers.account("brave"), clock=clock)
    assert await search(chain, "rye  bread") == await search(chain, " rye bread ")
    assert await search(chain, "rye bread", 1) != await search(chain, "rye bread")
    assert len(servers.called) == 2
    clock.advance(timedelta(minutes=15))
    await search(chain, "rye bread")
    assert len(servers.called) == 3


async def test_cache_size_is_limited_and_the_cache_can_be_disabled(
    servers: SearchServers, opened: list[SearchChain]
) -> None:
    chain = chain_of(opened, servers.account("brave"))
    for number in range(65):
        await search(chain, f"query {number}")
    await search(chain, "query 64")
    assert len(servers.called) == 65
    await search(chain, "query 0")
    assert len(servers.called) == 66
    off = chain_of(opened, servers.account("brave"), options=SearchOptions(reuse=timedelta()))
    await search(off, "rye")
    await search(off, "rye")
    assert len(servers.called) == 68
