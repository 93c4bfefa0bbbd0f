"""The text of the settings file for an editor, and edits of several keys at once."""

from pathlib import Path

import pytest

from talaria.settings.edit import FileChanged, check_text, edit_values, read_text, save_text
from talaria.settings.errors import SettingsInvalid
from talaria.settings.profiles import Profile
from talaria.settings.schema import SchemaField, SettingsSchema
from talaria.settings.schema_views import shape_of

TEXT = """\
# the store
[store]
url = "postgresql://me:hunter22@db/talaria" # ours

[telemetry]
headers = { Authorization = "Bearer hunter22", "X-Team" = "blue" }
"""


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path / "default")


def write(profile: Profile, text: str = TEXT) -> None:
    profile.prepare()
    profile.config_file.write_text(text)


def test_secrets_are_masked_for_the_editor_and_restored_on_save(profile: Profile) -> None:
    write(profile)
    shown = read_text(profile)
    assert "hunter22" not in shown.text
    assert "# ours" in shown.text
    save_text(profile, shown.text.replace("# the store", "# our store"), shown.version)
    assert profile.config_file.read_text() == TEXT.replace("# the store", "# our store")


def test_mask_in_a_changed_value_is_a_fault(profile: Profile) -> None:
    write(profile)
    shown = read_text(profile)
    text = shown.text.replace("@db/", "@other/")
    (fault,) = check_text(profile, text).faults
    assert (fault.key, fault.line) == ("store.url", 3)
    with pytest.raises(SettingsInvalid):
        save_text(profile, text, shown.version)
    assert profile.config_file.read_text() == TEXT


def test_diff_shows_no_secrets(profile: Profile) -> None:
    write(profile)
    checked = check_text(profile, read_text(profile).text + '[log]\nlevel = "debug"\n')
    assert checked.faults == ()
    assert checked.diff[-2:] == ("+[log]", '+level = "debug"')
    assert "hunter22" not in "\n".join(checked.diff)


def test_file_changed_since_it_was_read_is_not_overwritten(profile: Profile) -> None:
    write(profile)
    version = read_text(profile).version
    write(profile, TEXT + "[log]\n")
    with pytest.raises(FileChanged):
        save_text(profile, "", version)
    with pytest.raises(FileChanged):
        edit_values(profile, {"log.level": "debug"}, version)


def test_several_keys_are_changed_atomically(profile: Profile) -> None:
    write(profile)
    wrong = {"log.level": "loud", "log.format": "json", "gateway.open_sessions": "x"}
    with pytest.raises(SettingsInvalid) as refused:
        edit_values(profile, wrong, read_text(profile).version)
    assert [fault.key for fault in refused.value.faults] == ["log.level", "gateway.open_sessions"]
    edits = edit_values(profile, {"log.level": "debug", "telemetry.headers.X-Team": None}, read_text(profile).version)
    assert [(edit.key, edit.shown) for edit in edits] == [("log.level", "debug"), ("telemetry.headers.X-Team", "")]
    text = profile.config_file.read_text()
    assert "X-Team" not in text
    assert "# ours" in text
    edit_values(profile, {"log.level": "info"}, read_text(profile).version)
    assert "level" not in profile.config_file.read_text()  # the default


def test_every_setting_has_an_input_shape() -> None:
    schema = SettingsSchema()
    kinds = {field.key: shape_of(field).kind for field in schema.fields()}
    assert kinds["access.slash_access"] == "table"
    assert kinds["model.temperature"] == "number"
    for field in schema.fields():
        if shape_of(field).kind == "choice":
            assert all(field.accepts(_value(field, one)) for one in shape_of(field).choices), field.key


def _value(field: SchemaField, choice: str) -> object:
    return {"true": True, "false": False}.get(choice, choice) if field.key == "sandbox.enabled" else choice
