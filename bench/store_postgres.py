"""The same appends and searches on PostgreSQL, without a floor or goal."""

import asyncio
from collections.abc import Sequence
from statistics import median

from bench.store_appends import append_all
from bench.store_search import queries, search_ours
from bench.store_text import Example
from talaria.storage.postgres.open import open_postgres_store
from talaria.testing.postgres import PostgresServer, find_postgres


def print_postgres(examples: Sequence[Example]) -> None:
    """Start a server that waits for its disk, measure and print; without an installed server, say so."""
    if find_postgres() is None:
        print("PostgreSQL is not installed: not measured", flush=True)
        return
    with PostgresServer(durable=True) as server:
        asyncio.run(_measure(server.url, examples))


async def _measure(url: str, examples: Sequence[Example]) -> None:
    store = open_postgres_store(url)
    try:
        appends = await append_all(store, examples, tasks=8)
        print(f"PostgreSQL, 8 tasks: {appends.rate:,.0f} appends/s, worst {appends.worst:.1f} ms", flush=True)
        for kind, wanted in queries().items():
            times = await search_ours(store, wanted)
            print(f"PostgreSQL, search {len(examples):,}, {kind}: p50 {median(times):.2f} ms", flush=True)
    finally:
        await store.close()
