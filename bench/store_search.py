"""Search in many messages, compared with bare FTS5 queries; the corpus is cached in .bench/."""

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
from bench.store_text import Example, MessageGenerator, chinese_words, make_session_id
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SearchQuery
from talaria.storage.sqlite.connection import MIGRATIONS
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.tables.search import add_separators

CACHE = Path(__file__).parent.parent / ".bench"
_SESSIONS = 2_000
_COMMIT_SIZE = 10_000
_INDEX_BATCH = 400
_SAMPLES = 25


class Corpus(Struct, frozen=True):
    """The same messages in a store and in a bare FTS5 table."""

    store: Path
    bare: Path


def open_corpus(count: int) -> Corpus:
    """Return a corpus of ``count`` messages, built unless cached for this schema and generator."""
    folder = CACHE / f"store-{count}-{_digest()}"
    corpus = Corpus(folder / "store.db", folder / "bare.db")
    if not folder.exists():
        for old in CACHE.glob(f"store-{count}-*"):
            shutil.rmtree(old)
        unfinished = folder.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _build(Corpus(unfinished / "store.db", unfinished / "bare.db"), count)
        unfinished.rename(folder)
    return corpus


def sample_queries() -> dict[str, list[str]]:
    """Return search texts by kind: words by frequency, phrases, and Chinese words."""
    vocabulary = MessageGenerator(sessions=2).words
    common = vocabulary[:_SAMPLES]
    return {
        "rare word": vocabulary[40_000 : 40_000 + _SAMPLES],
        "medium word": vocabulary[2_000 : 2_000 + _SAMPLES],
        "common word": common,
        "phrase": [f"{first} {second}" for first, second in zip(common, common[5:] + common[:5], strict=True)],
        "Chinese word": chinese_words(_SAMPLES),
    }


async def search_ours(store: Store, texts: Sequence[str]) -> list[float]:
    """Search for each text in the store; return the milliseconds of each search."""
    times = list[float]()
    for text in texts:
        query = SearchQuery(text=f'"{text}"')
        start = perf_counter()
        await store.read(lambda transaction: transaction.search.find(query))  # noqa: B023
        times.append((perf_counter() - start) * 1000)
    return times


def search_bare(bare: BareSearch, texts: Sequence[str]) -> list[float]:
    """Search for each text in a bare table; return the milliseconds of each search."""
    times = list[float]()
    for text in texts:
        start = perf_counter()
        bare.find(text)
        times.append((perf_counter() - start) * 1000)
    return times


def _build(corpus: Corpus, count: int) -> None:
    print(f"building {count:,} messages in .bench/, cached for the next run", flush=True)
    database = open_sqlite(corpus.store)
    database.write(lambda transaction: create_sessions(transaction, _SESSIONS))
    examples = MessageGenerator(sessions=_SESSIONS).messages(count)
    while batch := list(islice(examples, _COMMIT_SIZE)):
        database.write(partial(_store_and_index, batch))
    database.close()
    bare = BareSearch(corpus.bare)
    bare.build(example.message.text for example in MessageGenerator(sessions=_SESSIONS).messages(count))
    bare.close()


def _store_and_index(batch: Sequence[Example], transaction: Transaction) -> None:
    """Append in few commits, but index in batches of the usual size, for an index of the usual structure."""
    for example in batch:
        transaction.messages.append(make_session_id(example.session), (example.message,))
    while transaction.search.catch_up(_INDEX_BATCH):
        pass


def _digest() -> str:
    """Return a digest of the schema, the generator and a sample of the messages."""
    schema = "".join(file.read_text() for file in sorted(MIGRATIONS.glob("*.sql")))
    sample = "".join(
        add_separators(example.message.text) for example in MessageGenerator(sessions=_SESSIONS).messages(1_000)
    )
    return hashlib.sha256((schema + inspect.getsource(store_text) + sample).encode()).hexdigest()[:12]
