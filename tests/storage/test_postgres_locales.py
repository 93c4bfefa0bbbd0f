"""The store behaves the same in PostgreSQL databases with other locale providers."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.contracts.sample_messages import text_message
from tests.contracts.test_search_store import SCRIPTS
from tests.storage.engines import StoreLocation, transaction_per_call

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SearchQuery
from talaria.core.errors import StoreUnavailable
from talaria.core.ids import new_id

RULES = {
    "libc": "LOCALE 'C.UTF-8'",
    "icu": "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LC_CTYPE 'C.UTF-8'",
}


@pytest.fixture(params=RULES)
def calls(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Transaction]:
    """A store in its own database."""
    name = f"test_{new_id()}"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        try:
            raw.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {RULES[request.param]}".encode())
        except psycopg.Error as error:
            pytest.skip(f"this server has no such rules: {error}")
        database = StoreLocation("postgres", postgres_url.removesuffix("postgres") + name, "talaria").open(
            SystemClock()
        )
        yield transaction_per_call(database)
        database.close()
        raw.execute(f"DROP DATABASE {name}".encode())


def test_keys_are_sorted_by_code_point(calls: Transaction) -> None:
    for key in ("goal:b", "goal:B", "goal:ä", "goal:a", "goal-c"):
        calls.named_values.put("test", key, "")
    assert [key for key, _ in calls.named_values.find("test", "goal")] == [
        "goal-c",
        "goal:B",
        "goal:a",
        "goal:b",
        "goal:ä",
    ]


def test_words_of_every_script_are_found(calls: Transaction) -> None:
    session = calls.sessions.create(NewSession(source="cli")).id
    for text, _ in SCRIPTS.values():
        calls.messages.append(session, [text_message(text)])
    expected = {word: number for number, (_, words) in enumerate(SCRIPTS.values(), 1) for word in words}
    found = {word: [hit.seq for hit in calls.search.find(SearchQuery(text=word))] for word in expected}
    assert {word: number for word, number in expected.items() if number not in found[word]} == {}


def test_database_in_another_encoding_is_refused(postgres_url: str) -> None:
    name = f"test_{new_id()}"
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'".encode())
        try:
            with pytest.raises(StoreUnavailable, match="has the encoding SQL_ASCII, but Talaria needs UTF8"):
                StoreLocation("postgres", postgres_url.removesuffix("postgres") + name, "talaria").open(SystemClock())
        finally:
            raw.execute(f"DROP DATABASE {name}".encode())
