from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from talaria.core.errors import NotFound, Refused, TalariaError
from talaria.settings.edit import set_value, unset_value
from talaria.settings.errors import SettingsInvalid
from talaria.settings.load import load, load_settings
from talaria.settings.profiles import Profile

COMMENTED = """\
# my settings
[store]  # where things are
readers = 2 # enough

# colours
[cli]
color = "auto"
"""


class Provider(msgspec.Struct, frozen=True):
    url: str
    models: list[str] = []


class Window(msgspec.Struct, frozen=True):
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high.")


SECTIONS: dict[str, Any] = {"providers": dict[str, Provider], "window": Window}


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path / "default")


def write(profile: Profile, text: str) -> None:
    profile.prepare()
    profile.config_file.write_text(text)


def test_changing_a_value_preserves_comments(profile: Profile) -> None:
    write(profile, COMMENTED)
    edit = set_value(profile, "store.readers", "4")
    assert profile.config_file.read_text() == COMMENTED.replace("readers = 2", "readers = 4")
    assert (edit.key, edit.shown, edit.live) == ("store.readers", "4", False)
    assert set_value(profile, "cli.color", "never").live


def test_new_key_is_added_to_its_section(profile: Profile) -> None:
    write(profile, COMMENTED)
    set_value(profile, "cli.time_zone", "Asia/Tokyo")
    set_value(profile, "log.level", "debug")
    text = profile.config_file.read_text()
    assert text.startswith(COMMENTED)
    assert text.removeprefix(COMMENTED).split() == ["time_zone", "=", '"Asia/Tokyo"', "[log]", "level", "=", '"debug"']
    assert load_settings(profile, {}).log.level == "debug"


def test_first_value_creates_folder_and_file(profile: Profile) -> None:
    set_value(profile, "store.busy_timeout_seconds", "2.5")
    assert load_settings(profile, {}).store.busy_timeout_seconds == 2.5


@pytest.mark.parametrize(
    "text", ["store = {readers = 2}", "store.readers = 2", "[store]\n'readers' = 2\n[cli]\n[store.x]\ny = 1"]
)
def test_notation_of_the_table_is_preserved(profile: Profile, text: str) -> None:
    write(profile, text)
    set_value(profile, "store.readers", "3")
    assert load(profile, {}).settings.store.readers == 3
    assert profile.config_file.read_text().strip() == text.replace("2", "3")


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("store.readers", "99", "`store.readers` must be a whole number from 1 to 16, but is the whole number 99."),
        ("store.readers", "many", 'but is the text "many".'),
        ("cli.color", "pink", "`cli.color` must be one of always, auto, never"),
        ("store.url", "mysql://me:hidden@x", 'but is the text "mysql://me:****@x".'),
        ("store.reader", "1", "`store.reader` is not a known key; the nearest is `store.readers`."),
        ("store", "1", "`store` is a table. Name a key in it."),
        ("", "1", "`` is not a known key"),
    ],
)
def test_invalid_value_is_reported_and_not_written(profile: Profile, key: str, text: str, sentence: str) -> None:
    write(profile, COMMENTED)
    with pytest.raises(TalariaError) as refused:
        set_value(profile, key, text)
    assert sentence in str(refused.value)
    assert profile.config_file.read_text() == COMMENTED


def test_value_that_contradicts_another_is_not_written(profile: Profile) -> None:
    with pytest.raises(SettingsInvalid, match="low must not be above high"):
        set_value(profile, "window.low", "3", SECTIONS)
    assert not profile.config_file.exists()


def test_one_fault_can_be_fixed_while_others_remain(profile: Profile) -> None:
    write(profile, "[store]\nreaders = 0\nconnections = 0\n")
    set_value(profile, "store.readers", "3")
    assert [fault.key for fault in load(profile, {}).faults] == ["store.connections"]


def test_file_that_is_not_toml_is_not_changed(profile: Profile) -> None:
    write(profile, "[store\n")
    with pytest.raises(SettingsInvalid, match="isn't valid TOML"):
        set_value(profile, "store.readers", "3")
    with pytest.raises(SettingsInvalid, match="isn't valid TOML"):
        unset_value(profile, "store.readers")
    assert profile.config_file.read_text() == "[store\n"


def test_a_value_used_as_a_table_is_reported(profile: Profile) -> None:
    write(profile, "store = 1\n")
    with pytest.raises(Refused, match="`store` isn't a table"):
        set_value(profile, "store.readers", "3")


def test_a_key_of_a_named_table_can_be_set(profile: Profile) -> None:
    set_value(profile, "providers.'my.local'.url", "http://here", SECTIONS)
    set_value(profile, "providers.'my.local'.models", "a, b", SECTIONS)
    providers = load(profile, {}, SECTIONS).section("providers", dict[str, Provider])
    assert providers == {"my.local": Provider(url="http://here", models=["a", "b"])}


def test_unsetting_restores_the_default_and_preserves_the_rest(profile: Profile) -> None:
    write(profile, COMMENTED)
    edit = unset_value(profile, "store.readers")
    assert edit.key == "store.readers"
    text = profile.config_file.read_text()
    assert "readers" not in text
    assert "# where things are" in text
    assert load_settings(profile, {}).store.readers == 2


def test_an_unknown_key_can_be_removed_from_the_file(profile: Profile) -> None:
    write(profile, "[stor]\nx = 1\n")
    unset_value(profile, "stor")
    assert load(profile, {}).faults == ()


def test_unsetting_a_missing_key_is_reported(profile: Profile) -> None:
    write(profile, COMMENTED)
    with pytest.raises(NotFound, match=r"`log\.level` is not set in"):
        unset_value(profile, "log.level")
    with pytest.raises(NotFound, match=r"the nearest is `log\.level`"):
        unset_value(profile, "log.levl")


def test_concurrent_edits_are_all_written(profile: Profile) -> None:
    edits = {"store.readers": "3", "store.connections": "5", "log.level": "debug", "cli.color": "never"}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: set_value(profile, key, edits[key]), edits))
    changed = {
        field.key: field.format_value(value) for field, value in load(profile, {}).values() if value != field.default
    }
    assert changed == edits
