import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.settings.config_file import ConfigFile
from talaria.settings.errors import SettingsInvalid
from talaria.settings.load import LoadedSettings, interpret, load, load_settings
from talaria.settings.model import CliSettings, Settings
from talaria.settings.profiles import Profile
from talaria.settings.sections.chats import ChatNetworkSettings


class Telegram(msgspec.Struct, frozen=True):
    enabled: bool = False
    chats: tuple[int, ...] = ()


class Provider(msgspec.Struct, frozen=True):
    url: Annotated[str, msgspec.Meta(description="Where it is.")]
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class Window(msgspec.Struct, frozen=True):
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high.")


SECTIONS: dict[str, Any] = {"bridges.telegram": Telegram, "providers": dict[str, Provider], "window": Window}


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path)


def read(text: str, sections: dict[str, Any] | None = None, **environment: str) -> LoadedSettings:
    return interpret(ConfigFile(Path("config.toml"), text), environment, sections or {})


def faults(text: str, sections: dict[str, Any] | None = None, **environment: str) -> list[str]:
    return [str(fault) for fault in read(text, sections, **environment).faults]


def test_a_profile_without_files_has_the_defaults(profile: Profile) -> None:
    assert load_settings(profile, {}) == Settings()


def test_the_file_wins_over_defaults_and_the_environment_over_the_file() -> None:
    text = '[store]\nreaders = 3\nbusy_timeout_seconds = 7\n\n[cli]\ntime_zone = "Europe/Berlin"\n'
    loaded = read(text, TALARIA__STORE__READERS="8", TALARIA__CLI__COLOR="never")
    assert loaded.faults == ()
    assert loaded.settings.store.readers == 8
    assert loaded.settings.store.busy_timeout_seconds == 7.0
    assert loaded.settings.cli == CliSettings(color="never", time_zone="Europe/Berlin")
    assert str(loaded.origin(("store", "readers"))) == "environment variable TALARIA__STORE__READERS"
    assert str(loaded.origin(("cli", "time_zone"))) == "config.toml:6"
    assert str(loaded.origin(("log", "level"))) == "default"


def test_all_faults_are_reported_at_once_with_line_expectation_and_nearest_key() -> None:
    text = (
        '[store]\nreader = 4\nreaders = 99\nurl = "mysql://me:hidden@host/db"\n\n'
        '[cli]\ncolor = true\ntime_zone = "Europe/Berlni"\n\n[stor]\nx = 1\n'
    )
    assert faults(text, TALARIA__LOG__LEVEL="loud", TALARIA__LOG__LEVL="info") == [
        (
            "environment variable TALARIA__LOG__LEVL: `TALARIA__LOG__LEVL` doesn't match any setting; "
            "the nearest is `TALARIA__LOG__LEVEL`."
        ),
        "config.toml, line 2: `store.reader` is not a known key; the nearest is `store.readers`.",
        "config.toml, line 3: `store.readers` must be a whole number from 1 to 16, but is the whole number 99.",
        (
            "config.toml, line 4: `store.url` must be empty or an address that starts with postgresql://, "
            'but is the text "mysql://me:****@host/db".'
        ),
        "config.toml, line 7: `cli.color` must be one of always, auto, never, but is true.",
        (
            "config.toml, line 8: `cli.time_zone` must be empty or the name of a time zone, for example Europe/Berlin, "
            'but is the text "Europe/Berlni".'
        ),
        "config.toml, line 10: `stor` is not a known section; the nearest is `store`.",
        (
            "environment variable TALARIA__LOG__LEVEL: `log.level` must be one of debug, error, info, warning, "
            'but is the text "loud".'
        ),
    ]


def test_valid_settings_apply_despite_faults_in_others() -> None:
    loaded = read('[store]\nreaders = "many"\nconnections = 9\n')
    assert len(loaded.faults) == 1
    assert (loaded.settings.store.readers, loaded.settings.store.connections) == (2, 9)


def test_a_wrong_value_in_the_file_is_reported_even_if_the_environment_overrides_it() -> None:
    assert len(faults("[store]\nreaders = 0\n", TALARIA__STORE__READERS="3")) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("store = 5", "line 1: `store` must be a table, but is the whole number 5."),
        ("[store]\nreaders = true", "line 2: `store.readers` must be a whole number from 1 to 16, but is true."),
        (
            "[store]\nreaders = 2.5",
            "line 2: `store.readers` must be a whole number from 1 to 16, but is the number 2.5.",
        ),
        ("[store]\nreaders = [2]", "line 2: `store.readers` must be a whole number from 1 to 16, but is a list."),
        (
            '[web]\nengines = ["brave", "bing"]',
            'duckduckgo, but is a list of "brave", "bing".',
        ),
        ('[store.readers]\nx = "1"', "line 1: `store.readers` must be a whole number from 1 to 16, but is a table."),
        (
            '[platforms.x.options]\na = "b"\nfast = true',
            "`platforms.x.options` must be a table, each value text, but is a table in which `fast` is true.",
        ),
        ("[store]\nbusy_timeout_seconds = nan", "must be a number above 0 and of at most 3600, but is the number nan."),
        ("[store]\nschema = 1979-05-27", "but is the time 1979-05-27."),
        ('[store]\nschema = "1a"', "not starting with a digit, but is the text"),
        ("[store]\ncolor = 'never'", "`store.color` is not a known key; the nearest is `cli.color`."),
        ("[zzz]", "`zzz` is not a known section; known are `store`, `cli`, `sessions`, `doctor`, "),
        ("color = 1", "`color` is not a known key; the nearest is `cli.color`."),
        ("[store\nreaders = 2", "line 1: This isn't valid TOML: "),
        ('[store]\nurl = "', "line 2: This isn't valid TOML: "),
        ("[store]\nreaders = 1\nreaders = 2", "line 3: This isn't valid TOML: cannot overwrite a value."),
        ("a = " + "[" * 100_000, "This isn't valid TOML: "),
    ],
)
def test_fault_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    found = faults(text)
    assert len(found) == 1
    assert found[0].startswith("config.toml")
    assert sentence in found[0]


def test_a_file_that_is_not_utf8_is_a_fault_with_its_line(profile: Profile) -> None:
    profile.config_file.write_bytes(b'[store]\nurl = "\xff"\n')
    assert [str(fault) for fault in load(profile, {}).faults] == [
        f"{profile.config_file}, line 2: The file must be UTF-8 text."
    ]


def test_a_file_that_cannot_be_opened_is_a_fault(profile: Profile) -> None:
    profile.config_file.mkdir()
    with pytest.raises(SettingsInvalid) as invalid:
        load_settings(profile, {})
    assert str(invalid.value) == f"{profile.config_file}: The file can't be read: Is a directory."


def test_a_byte_order_mark_is_no_fault(profile: Profile) -> None:
    profile.config_file.write_bytes(b"\xef\xbb\xbf[store]\nreaders = 3\n")
    assert load_settings(profile, {}).store.readers == 3


def test_invalid_settings_list_every_fault_on_its_own_line(profile: Profile) -> None:
    profile.config_file.write_text("[store]\nreaders = 0\nconnections = 0\n")
    with pytest.raises(SettingsInvalid) as invalid:
        load_settings(profile, {})
    assert len(str(invalid.value).splitlines()) == len(invalid.value.faults) == 2


def test_section_of_a_plugin_is_read_and_checked() -> None:
    text = "[bridges.telegram]\nenabled = true\nchats = [1, 2]\n"
    loaded = read(text, SECTIONS)
    assert loaded.faults == ()
    assert loaded.section("bridges.telegram", Telegram) == Telegram(enabled=True, chats=(1, 2))
    assert faults("[bridges.telegram]\nenable = true\n", SECTIONS) == [
        (
            "config.toml, line 2: `bridges.telegram.enable` is not a known key; "
            "the nearest is `bridges.telegram.enabled`."
        )
    ]
    assert faults("[bridges.telegrm]\n", SECTIONS) == [
        "config.toml, line 1: `bridges.telegrm` is not a known section; the nearest is `bridges.telegram`."
    ]
    assert len(faults(text)) == 1


def test_network_table_has_common_and_network_specific_keys() -> None:
    sections = {"platforms.telegram": Window}
    text = '[platforms.telegram]\nlow = 0\nallowed = ["1"]\n[platforms.matrix]\neveryone = true\n'
    loaded = read(text, sections, TALARIA__PLATFORMS__TELEGRAM__RESET="daily")
    assert loaded.faults == ()
    assert loaded.section("platforms.telegram", Window) == Window(low=0)
    assert loaded.settings.platforms == {
        "telegram": ChatNetworkSettings(allowed=("1",), reset="daily"),
        "matrix": ChatNetworkSettings(everyone=True),
    }
    values = {field.key: value for field, value in loaded.values()}
    assert (values["platforms.telegram.low"], values["platforms.telegram.allowed"]) == (0, ("1",))
    assert read(text).settings.platforms["matrix"].everyone
    assert [fault.key for fault in read(text).faults] == ["platforms.telegram.low"]
    assert [fault.nearest for fault in read("[platforms.telegram]\nlov = 1\nalowed = []\n", sections).faults] == [
        "platforms.telegram.low",
        "platforms.telegram.allowed",
    ]


def test_missing_section_has_its_defaults() -> None:
    assert read("", SECTIONS).section("bridges.telegram", Telegram) == Telegram()
    assert read("", SECTIONS).section("providers", dict[str, Provider]) == {}


def test_nested_section_is_read_with_its_own_type() -> None:
    sections = {"bridges": Window, "bridges.telegram": Telegram}
    loaded = read("[bridges]\nlow = 2\n[bridges.telegram]\nenabled = true\n", sections)
    assert loaded.faults == ()
    assert loaded.section("bridges", Window) == Window(low=2)
    assert loaded.section("bridges.telegram", Telegram).enabled


def test_type_of_a_section_is_loaded_only_if_its_table_exists() -> None:
    requested: list[str] = []

    class Lazy(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            requested.append(name)
            return super().__getitem__(name)

    source = ConfigFile(Path("config.toml"), "[bridges.telegram]\nenabled = true\n[log]\nlevel = 'debug'\n")
    assert interpret(source, {}, Lazy(SECTIONS)).faults == ()
    assert SECTIONS.keys() & requested == {"bridges.telegram"}


def test_fault_in_a_named_table_has_the_name_of_the_table() -> None:
    text = '[providers.local]\nurl = "http://here"\n[providers."gpt.4"]\ntimeout = 0\n'
    loaded = read(text, SECTIONS)
    assert [str(fault) for fault in loaded.faults] == [
        'config.toml, line 4: `providers."gpt.4".timeout` must be a number above 0, but is the whole number 0.',
        'config.toml, line 3: `providers."gpt.4".url` is missing; it must be text.',
    ]


def test_variable_overrides_a_named_table_despite_different_spelling() -> None:
    text = '[providers.My-Local]\nurl = "http://here"\n'
    loaded = read(text, SECTIONS, TALARIA__PROVIDERS__MY_LOCAL__TIMEOUT="5", TALARIA__PROVIDERS__OTHER__URL="there")
    assert loaded.faults == ()
    assert loaded.section("providers", dict[str, Provider]) == {
        "My-Local": Provider(url="http://here", timeout=5.0),
        "other": Provider(url="there"),
    }
    assert {field.key: value for field, value in loaded.values()}["providers.My-Local.timeout"] == 5.0
    assert str(loaded.origin(("providers", "My-Local", "url"))) == "config.toml:2"


def test_contradicting_values_are_a_fault_of_their_section() -> None:
    assert faults("\n[window]\nlow = 3\n", SECTIONS) == ["config.toml, line 2: `window`: low must not be above high."]


@pytest.mark.parametrize(
    ("text", "chats"), [("1, 2", (1, 2)), ("[1,2]", (1, 2)), ("7", (7,)), ("", ()), (" 1 ,,2,", (1, 2))]
)
def test_a_list_in_the_environment_is_written_with_commas_or_as_json(text: str, chats: tuple[int, ...]) -> None:
    loaded = read("", SECTIONS, TALARIA__BRIDGES__TELEGRAM__CHATS=text)
    assert loaded.faults == ()
    assert loaded.section("bridges.telegram", Telegram).chats == chats


@pytest.mark.parametrize(
    ("text", "enabled"), [("true", True), ("Yes", True), ("1", True), ("off", False), ("0", False)]
)
def test_boolean_in_the_environment_has_several_spellings(text: str, *, enabled: bool) -> None:
    loaded = read("", SECTIONS, TALARIA__BRIDGES__TELEGRAM__ENABLED=text)
    assert loaded.section("bridges.telegram", Telegram).enabled is enabled


@pytest.mark.parametrize(
    "name",
    ["TALARIA__", "TALARIA__STORE", "TALARIA__STORE__", "TALARIA__STORE__URL__X", "TALARIA__store__url", "TALARIA____"],
)
def test_a_variable_that_overrides_nothing_is_a_fault(name: str) -> None:
    assert len(interpret(ConfigFile(Path("config.toml"), ""), {name: "x"}).faults) == 1


def test_loading_settings_does_not_import_unneeded_modules() -> None:
    script = "import sys, talaria.settings.load; print({'asyncio', 'tomlkit', 'zoneinfo', 'difflib'} & {*sys.modules})"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


def test_talaria_variables_that_are_not_settings_are_ignored() -> None:
    assert faults("", TALARIA_HOME="/x", TALARIA_PROFILE="y", HOME="/z") == []


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3))
def test_arbitrary_text_and_variables_cause_faults_but_no_exception(text: str, environment: dict[str, str]) -> None:
    overrides = {f"TALARIA__{name}": value for name, value in environment.items()}
    loaded = interpret(ConfigFile(Path("config.toml"), text), overrides, SECTIONS)
    assert all(str(fault) for fault in loaded.faults)
