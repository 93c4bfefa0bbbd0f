import tomllib
from pathlib import Path

from talaria.settings.config_file import ConfigFile
from talaria.settings.load import interpret
from talaria.settings.schema import SchemaField, SchemaTable, SettingsSchema, format_key, split_key
from talaria.settings.schema_views import render_template


def field(key: str) -> SchemaField:
    found = SettingsSchema().find(split_key(key))
    assert isinstance(found, SchemaField)
    return found


def test_every_setting_has_a_description_of_one_sentence() -> None:
    for each in SettingsSchema().fields():
        assert each.doc.endswith("."), each.key
        assert each.doc.count(". ") == 0, each.key
        assert each.kind, each.key


def test_every_default_is_a_valid_value() -> None:
    assert [each.key for each in SettingsSchema().fields() if not each.accepts(each.default)] == []


def test_field_has_kind_limits_default_and_variable() -> None:
    readers = field("store.readers")
    assert (readers.kind, readers.constraint, readers.default) == ("a whole number", "from 1 to 16", 2)
    assert readers.expected == "a whole number from 1 to 16"
    assert readers.variable == "TALARIA__STORE__READERS"
    assert not readers.live
    assert field("log.level").live


def test_a_password_in_an_address_is_not_shown() -> None:
    url = field("store.url")
    assert url.secret
    assert url.format_value("postgresql://me:p@ss/w:rd@host:5432/db") == "postgresql://me:****@host:5432/db"
    assert (
        url.format_value("postgresql:///db?user=me&password=hidden&x=1") == "postgresql:///db?user=me&password=****&x=1"
    )
    assert url.format_value("postgresql://host/db") == "postgresql://host/db"


def test_unknown_time_zones_are_refused() -> None:
    zone = field("cli.time_zone")
    assert all(zone.accepts(name) for name in ("", "UTC", "Asia/Tokyo"))
    assert not any(zone.accepts(name) for name in ("Mars/Base", "/etc/localtime", "../x", "Europe", "\0"))


def test_tables_and_unknown_keys_are_not_fields() -> None:
    assert isinstance(SettingsSchema().find(("store",)), SchemaTable)
    assert SettingsSchema().find(("store", "nothing")) is None
    assert SettingsSchema().find(("store", "url", "deeper")) is None


def test_the_nearest_key_is_found_by_spelling_and_by_its_last_part() -> None:
    model = SettingsSchema()
    assert model.find_nearest_key("store.reeders") == "store.readers"
    assert model.find_nearest_key("level") == "log.level"
    assert model.find_nearest_key("qqqq") == ""


def test_keys_with_dots_in_their_parts_are_quoted() -> None:
    for key in [("store", "url"), ("providers", "gpt.4", "url"), ("a", 'say "hi"')]:
        assert split_key(format_key(key)) == key


def test_template_describes_every_key_and_sets_none() -> None:
    text = render_template(SettingsSchema())
    loaded = interpret(ConfigFile(Path("config.toml"), text), {})
    assert loaded.faults == ()
    assert not any(tomllib.loads(text).values())
    assert all(each.doc in text for each in SettingsSchema().fields())


def test_uncommented_template_is_valid() -> None:
    text = render_template(SettingsSchema()).replace("# [", "[").replace("<name>", "mine")
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    assert interpret(ConfigFile(Path("config.toml"), "\n".join(lines)), {}).faults == ()
