"""Small values by key."""

from talaria.contracts.store import Transaction
from talaria.contracts.stores.key_value import KeyValueEntry


def test_a_value_is_read_back_with_the_number_of_times_it_was_written(mine: Transaction) -> None:
    assert mine.state.put("goal:one", "climb") == 1
    assert mine.state.put("goal:one", "rest") == 2
    assert mine.state.get("goal:one") == KeyValueEntry("goal:one", "rest", 2)
    assert mine.state.get("goal:two") is None


def test_a_value_is_replaced_only_at_the_version_that_was_read(mine: Transaction, theirs: Transaction) -> None:
    mine.state.put("home", "a")
    assert theirs.state.replace("home", "b", version=1)
    assert not mine.state.replace("home", "c", version=1)
    assert mine.state.get("home") == KeyValueEntry("home", "b", 2)


def test_version_zero_means_that_the_key_must_not_be_there(mine: Transaction) -> None:
    assert mine.state.replace("home", "a", version=0)
    assert not mine.state.replace("home", "b", version=0)
    assert mine.state.get("home") == KeyValueEntry("home", "a", 1)


def test_a_key_that_is_not_there_cannot_be_replaced(mine: Transaction) -> None:
    assert not mine.state.replace("home", "a", version=1)
    assert mine.state.get("home") is None


def test_a_deleted_key_is_gone_and_can_be_written_anew(mine: Transaction) -> None:
    mine.state.put("home", "a")
    assert mine.state.delete("home")
    assert not mine.state.delete("home")
    assert mine.state.replace("home", "b", version=0)


def test_entries_are_listed_by_the_beginning_of_their_keys_in_order(mine: Transaction) -> None:
    for key in ("goal:b", "goal:B", "goal:ä", "goal:a", "goals", "Goal:a", "approval:a"):
        mine.state.put(key, key)
    assert [entry.key for entry in mine.state.with_prefix("goal:")] == ["goal:B", "goal:a", "goal:b", "goal:ä"]
    assert len(mine.state.with_prefix("")) == 7


def test_a_prefix_may_end_with_the_last_of_all_characters(mine: Transaction) -> None:
    for key in ("a", "a\U0010ffff", "a\U0010ffffb", "b", "\U0010ffff", "\ud7ff:a", "\ue000"):
        mine.state.put(key, "")
    found = {
        prefix: [entry.key for entry in mine.state.with_prefix(prefix)]
        for prefix in ("a\U0010ffff", "\U0010ffff", "\ud7ff")
    }
    assert found == {
        "a\U0010ffff": ["a\U0010ffff", "a\U0010ffffb"],
        "\U0010ffff": ["\U0010ffff"],
        "\ud7ff": ["\ud7ff:a"],
    }


def test_a_prefix_is_taken_word_for_word(mine: Transaction) -> None:
    for key in ("a%b", "a_b", "axb", "a\\b", "日本:1", "日本:2"):
        mine.state.put(key, "")
    found = {prefix: [entry.key for entry in mine.state.with_prefix(prefix)] for prefix in ("a%", "a_", "a\\", "日本:")}
    assert found == {"a%": ["a%b"], "a_": ["a_b"], "a\\": ["a\\b"], "日本:": ["日本:1", "日本:2"]}
