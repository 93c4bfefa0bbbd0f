from pathlib import Path

import pytest

from talaria.settings.config_file import ConfigFile
from talaria.settings.load import LoadedSettings, interpret
from talaria.settings.sections.chats import AccessSettings, PersonSettings


def read(text: str, **environment: str) -> LoadedSettings:
    return interpret(ConfigFile(Path("config.toml"), text), environment)


def test_people_and_chats_are_named_by_network_and_id_or_by_name() -> None:
    loaded = read(
        '[access]\nowners = ["anna"]\nallowed = ["telegram:1", "matrix:@ben:example.org"]\nchats = ["telegram:-100"]\n'
        '[access.slash_access]\nmodel = ["owner", "telegram:1"]\n[people.anna]\nids = ["telegram:2"]\n',
        TALARIA__ACCESS__BLOCKED="telegram:6, telegram:7",
    )
    assert loaded.faults == ()
    assert loaded.settings.people == {"anna": PersonSettings(ids=("telegram:2",))}
    assert loaded.settings.access == AccessSettings(
        owners=("anna",),
        allowed=("telegram:1", "matrix:@ben:example.org"),
        chats=("telegram:-100",),
        blocked=("telegram:6", "telegram:7"),
        slash_access={"model": ("owner", "telegram:1")},
    )


def test_strangers_have_no_access_but_may_pair_by_default() -> None:
    access = read("").settings.access
    assert (access.everyone, access.pairing, access.owners, access.allowed, access.chats) == (False, True, (), (), ())


@pytest.mark.parametrize(
    "text",
    [
        '[access]\nallowed = [""]',
        '[access]\nallowed = ["telegram:"]',
        '[access]\nallowed = [":12"]',
        '[access]\nallowed = ["telegram: 12"]',
        '[access]\nchats = ["Family"]',
        '[people.anna]\nids = ["12345"]',
        '[access.slash_access]\nmodel = [""]',
        '[access.slash_access]\nmodel = "owner"',
        '[platforms.telegram]\nreset = "weekly"',
        "[platforms.telegram]\nreset_hour = 24",
        "[platforms.telegram]\nreset_idle_minutes = 0",
    ],
)
def test_invalid_person_chat_or_reset_setting_is_a_fault(text: str) -> None:
    assert len(read(text).faults) == 1
