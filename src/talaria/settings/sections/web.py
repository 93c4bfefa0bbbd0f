"""Settings of the web tools: search engines and fetching."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.settings.sections.checks import are_engine_addresses

SEARCH_ENGINES = ("brave", "tavily", "exa", "serper", "google", "kagi", "searxng", "duckduckgo")
_SOME_ENGINES: dict[str, object] = {
    "check": lambda names: set(names) <= set(SEARCH_ENGINES),
    "expected": f"a list of some of {', '.join(SEARCH_ENGINES)}",
}


class WebSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Web searches and pages."""

    engines: Annotated[
        tuple[str, ...],
        Meta(
            description="Search engines in order, the next where one fails; empty means those with a key, then "
            "DuckDuckGo.",
            extra=_SOME_ENGINES,
        ),
    ] = ()
    addresses: Annotated[
        dict[str, str],
        Meta(
            description="Addresses of search engines by name: of your own SearXNG server, or in place of the vendor's.",
            extra={
                "check": lambda addresses: are_engine_addresses(addresses, SEARCH_ENGINES),
                "expected": "engines with addresses that start with https:// or http://",
            },
        ),
    ] = {}
    google_engine_id: Annotated[
        str, Meta(description="Id (cx) of your Programmable Search Engine, for the search engine google.")
    ] = ""
    search_seconds: Annotated[
        float, Meta(ge=1, le=120, description="How long one search engine may take before the next is used.")
    ] = 10.0
    cache_minutes: Annotated[
        int, Meta(ge=0, le=1440, description="Minutes for which a conversation reuses search results; 0 means never.")
    ] = 15
    robots: Annotated[
        bool, Meta(description="Whether pages that a site's robots.txt forbids to programs are left alone.")
    ] = True
    fetch_megabytes: Annotated[float, Meta(gt=0, le=100, description="Maximum size of a fetched page or document.")] = (
        5.0
    )
