"""The web_search tool: several engines in order, the next one where one fails, and a small cache."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import TalariaError, ToolFailed

if TYPE_CHECKING:  # loaded with the first search: sockets and TLS; used only in annotations
    from talaria.contracts.setup import Outcome
    from talaria.http_client.client import HttpPool

_LONGEST_SNIPPET = 300
_CACHED_SEARCHES = 64
_TIMEOUT_PAUSE = timedelta(minutes=1)


class SearchResult(Struct, frozen=True):
    """A page found by an engine; ``date`` as the engine gives it, ISO days where it is a time."""

    title: str
    url: str
    snippet: str
    date: str = ""


class EngineAccount(Struct, frozen=True):
    """An engine to ask, by its name, with what the settings have for it; an empty ``url`` means the vendor's."""

    name: str
    key: str = ""
    url: str = ""
    engine_id: str = ""


class EngineFailed(TalariaError):
    """An engine can't be used; it is left alone for ``pause``."""

    def __init__(self, reason: str, pause: timedelta = timedelta(), outcome: "Outcome" = "odd") -> None:
        super().__init__(reason)
        self.pause = pause
        self.outcome = outcome


class SearchOptions(Struct, frozen=True):
    """Limits of a search: ``seconds`` for each engine, and the age up to which results are reused."""

    seconds: float = 10.0
    reuse: timedelta = timedelta(minutes=15)


class FoundPages(Struct, frozen=True):
    """The results, the title of the engine they came from, and why engines before it were skipped."""

    engine: str
    results: Sequence[SearchResult]
    skipped: Sequence[str]


class SearchChain:
    """Engines in order. Owns its connections from first use to `close`.

    ``accounts`` is read for each search. An engine that failed is left alone for a while, unless its key changes. The
    cache is bounded in number and age.
    """

    def __init__(
        self,
        accounts: Callable[[], Sequence[EngineAccount]],
        options: SearchOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._accounts = accounts
        self._options = options or SearchOptions()
        self._clock = clock or SystemClock()
        self._http: HttpPool | None = None
        self._paused: dict[EngineAccount, tuple[datetime, str]] = {}
        self._cache: OrderedDict[tuple[str, int], tuple[datetime, FoundPages]] = OrderedDict()

    async def search(self, query: str, count: int) -> FoundPages:
        """Return the results of the first engine that has any, or raise `ToolFailed` if none answered."""
        key = (" ".join(query.split()), count)
        cached = self._read_cache(key)
        if cached is not None:
            return cached
        from talaria.tools.web.engines import ENGINES  # noqa: PLC0415 (loaded with the first search)

        skipped: list[str] = []
        has_answer = False
        for account in self._accounts():
            title = ENGINES[account.name].title
            try:
                results = await self._ask_unless_paused(account, query, count)
            except EngineFailed as error:
                skipped.append(f"{title}: {error}")
                continue
            if results:
                return self._write_cache(key, FoundPages(title, results, tuple(skipped)))
            has_answer = True
            skipped.append(f"{title}: no results")
        if has_answer:
            return FoundPages("", (), tuple(skipped))
        raise ToolFailed(
            f"no search engine answered ({'; '.join(skipped)}). Fetch a page you know, or ask for "
            "an engine to be set up with `talaria setup tools`."
        )

    async def ask(self, account: EngineAccount, query: str, count: int) -> Sequence[SearchResult]:
        """Ask one engine, within its time limit, or raise `EngineFailed`."""
        from talaria.tools.web.engines import ask_engine  # noqa: PLC0415 (loaded with the first search)

        seconds = self._options.seconds
        try:
            async with asyncio.timeout(seconds):
                return await ask_engine(self._open_pool(), account, query, count)
        except TimeoutError as error:
            raise EngineFailed(f"no answer within {seconds:g} s", _TIMEOUT_PAUSE, "late") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _ask_unless_paused(self, account: EngineAccount, query: str, count: int) -> Sequence[SearchResult]:
        now = self._clock.now()
        until, reason = self._paused.get(account, (now, ""))
        if until > now:
            seconds = max(1, round((until - now).total_seconds()))
            raise EngineFailed(f"{reason}, not asked again for {seconds} s")
        try:
            return await self.ask(account, query, count)
        except EngineFailed as error:
            if error.pause:
                self._paused[account] = (self._clock.now() + error.pause, str(error))
            raise

    def _open_pool(self) -> "HttpPool":
        if self._http is None:
            from talaria.http_client.client import HttpPool  # noqa: PLC0415 (loaded with the first search)

            self._http = HttpPool()
        return self._http

    def _read_cache(self, key: tuple[str, int]) -> FoundPages | None:
        at, found = self._cache.get(key, (None, None))
        if at is None or self._clock.now() - at >= self._options.reuse:
            return None
        return found

    def _write_cache(self, key: tuple[str, int], found: FoundPages) -> FoundPages:
        self._cache[key] = (self._clock.now(), found)
        self._cache.move_to_end(key)
        while len(self._cache) > _CACHED_SEARCHES:
            self._cache.popitem(last=False)
        return found


class WebSearchArguments(Struct, frozen=True):
    """A search query."""

    query: Annotated[str, Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1, le=20)] = 8


class WebSearch:
    """Searches with a chain of engines."""

    name = "web_search"
    description = "Search the web. Read results with web_fetch."
    effect = Effect.READS
    arguments: type[Struct] = WebSearchArguments

    def __init__(self, engines: SearchChain) -> None:
        self._engines = engines

    def proposed_action(self, arguments: WebSearchArguments) -> ProposedAction:
        """Describe the search."""
        return ProposedAction("fetch", f"web search: {arguments.query}")

    async def run(self, arguments: WebSearchArguments, call: Call) -> ToolOutput:
        """Return titles, URLs, dates and snippets, with the engine's name and the engines that were skipped."""
        found = await self._engines.search(arguments.query, arguments.count)
        skipped = "; ".join(found.skipped)
        if not found.results:
            return ToolOutput(f"Nothing found ({skipped}).")
        before = f" (skipped {skipped})" if skipped else ""
        shown = [f"{number}. {_show(result)}" for number, result in enumerate(found.results, 1)]
        return ToolOutput("\n\n".join([f"Results from {found.engine}{before}:", *shown]), source="a web search")

    async def close(self) -> None:
        """Close the connections."""
        await self._engines.close()


def _show(result: SearchResult) -> str:
    snippet = " ".join(result.snippet.split())[:_LONGEST_SNIPPET]
    about = " · ".join(filter(None, [" ".join(result.date.split())[:40], snippet]))
    return "\n".join(filter(None, [" ".join(result.title.split()), result.url, about]))
