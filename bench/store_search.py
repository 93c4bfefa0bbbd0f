"""Search in many messages, compared with a bare FTS5 query; the files are built once and cached in .bench/."""

import hashlib
import inspect
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from bench import store_text
from bench.store_appends import create_sessions
from bench.store_floor import BareSearch
from bench.store_text import Example, Writer, chinese_words, session_id_of
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SearchQuery
from talaria.storage.sqlite.connection import MIGRATIONS
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.tables.search import add_separators

KEPT = Path(__file__).parent.parent / ".bench"
_SESSIONS = 2_000
_AT_ONCE = 10_000
_INDEXED_AT_ONCE = 400
_SAMPLES = 25


class Corpus(Struct, frozen=True):
    """The same messages in a store and in a bare FTS5 table."""

    store: Path
    bare: Path


def corpus(count: int) -> Corpus:
    """Return a corpus of ``count`` messages; one that fits the present schema and generator is not built again."""
    folder = KEPT / f"store-{count}-{_digest()}"
    made = Corpus(folder / "store.db", folder / "bare.db")
    if not folder.exists():
        for old in KEPT.glob(f"store-{count}-*"):
            shutil.rmtree(old)
        unfinished = folder.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _build(Corpus(unfinished / "store.db", unfinished / "bare.db"), count)
        unfinished.rename(folder)
    return made


def queries() -> dict[str, list[str]]:
    """Return what to look for, by kind; words by how common they are."""
    vocabulary = Writer(sessions=2).words
    common = vocabulary[:_SAMPLES]
    return {
        "rare word": vocabulary[40_000 : 40_000 + _SAMPLES],
        "medium word": vocabulary[2_000 : 2_000 + _SAMPLES],
        "common word": common,
        "phrase": [f"{first} {second}" for first, second in zip(common, common[5:] + common[:5], strict=True)],
        "Chinese word": chinese_words(_SAMPLES),
    }


async def search_ours(store: Store, wanted: Sequence[str]) -> list[float]:
    """Look for each text in the store and return the milliseconds that each took."""
    times = list[float]()
    for text in wanted:
        query = SearchQuery(text=f'"{text}"')
        start = perf_counter()
        await store.read(lambda transaction: transaction.search.find(query))  # noqa: B023
        times.append((perf_counter() - start) * 1000)
    return times


def search_bare(bare: BareSearch, wanted: Sequence[str]) -> list[float]:
    """Do the same on a bare table."""
    times = list[float]()
    for text in wanted:
        start = perf_counter()
        bare.find(text)
        times.append((perf_counter() - start) * 1000)
    return times


def _build(made: Corpus, count: int) -> None:
    print(f"building {count:,} messages below .bench/, kept for the next run", flush=True)
    database = open_sqlite(made.store)
    database.write(lambda transaction: create_sessions(transaction, _SESSIONS))
    examples = Writer(sessions=_SESSIONS).messages(count)
    while batch := list(islice(examples, _AT_ONCE)):
        database.write(partial(_store_and_index, batch))
    database.close()
    bare = BareSearch(made.bare)
    bare.build(one.message.text for one in Writer(sessions=_SESSIONS).messages(count))
    bare.close()


def _store_and_index(batch: Sequence[Example], transaction: Transaction) -> None:
    """Append in few commits, but index in batches of the usual size, so that the index has its usual shape."""
    for one in batch:
        transaction.messages.append(session_id_of(one.session), (one.message,))
    while transaction.search.catch_up(_INDEXED_AT_ONCE):
        pass


def _digest() -> str:
    """Return what changes when the schema, the examples or their words change."""
    schema = "".join(file.read_text() for file in sorted(MIGRATIONS.glob("*.sql")))
    sample = "".join(add_separators(one.message.text) for one in Writer(sessions=_SESSIONS).messages(1_000))
    return hashlib.sha256((schema + inspect.getsource(store_text) + sample).encode()).hexdigest()[:12]
