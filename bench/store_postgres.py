"""Appends and searches on PostgreSQL, without a floor or goal."""

import asyncio
from collections.abc import Sequence
from statistics import median

from bench.store_appends import append_all
from bench.store_search import sample_queries, search_ours
from bench.store_text import Example
from talaria.storage.postgres.open import open_postgres_store
from talaria.testing.postgres import PostgresServer, find_postgres


def print_postgres(examples: Sequence[Example]) -> None:
    """Print measurements of a PostgreSQL with durable writes, or a notice if none is installed."""
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
        for kind, texts in sample_queries().items():
            times = await search_ours(store, texts)
            print(f"PostgreSQL, search {len(examples):,}, {kind}: p50 {median(times):.2f} ms", flush=True)
    finally:
        await store.close()
