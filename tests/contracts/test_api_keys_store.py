"""API keys by name."""

from datetime import UTC, datetime

from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import StoredApiKey

AT = datetime(2026, 5, 6, 7, 8, 9, 10, UTC)


def test_api_keys_are_added_once_listed_by_name_and_deleted(mine: Transaction, theirs: Transaction) -> None:
    keys = [
        StoredApiKey(name=name, scopes=("chat", "read"), digest=name * 3, created_at=AT) for name in ("b", "a", "Z")
    ]
    assert all(mine.api_keys.add(key) for key in keys)
    assert not theirs.api_keys.add(keys[0])
    assert theirs.api_keys.all() == sorted(keys, key=lambda key: key.name)
    assert mine.api_keys.delete("a")
    assert not mine.api_keys.delete("a")
    assert [key.name for key in mine.api_keys.all()] == ["Z", "b"]
