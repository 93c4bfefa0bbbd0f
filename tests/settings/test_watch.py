from pathlib import Path

import pytest

from talaria.settings.atomic_files import write_file
from talaria.settings.errors import SettingsInvalid
from talaria.settings.profiles import Profile
from talaria.settings.secrets import remove_secret, store_secret
from talaria.settings.watch import SettingsChange, SettingsWatch


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path)


def poll(watch: SettingsWatch) -> SettingsChange:
    change = watch.poll()
    assert change is not None
    return change


def test_nothing_is_reported_without_changes(profile: Profile) -> None:
    watch = SettingsWatch(profile, {})
    assert watch.poll() is None
    write_file(profile.config_file, "# only a comment\n")
    assert watch.poll() is None


def test_a_change_is_reported_once_with_live_and_pending_settings(profile: Profile) -> None:
    watch = SettingsWatch(profile, {})
    write_file(profile.config_file, '[log]\nlevel = "debug"\n[store]\nreaders = 4\nurl = "postgresql://me:pw@h/d"\n')
    change = poll(watch)
    assert change.settings.log.level == "debug"
    assert [changed.sentence for changed in change.live] == ["`log.level` is now debug, it was info."]
    assert [changed.sentence for changed in change.restart] == [
        "`store.url` is now postgresql://me:****@h/d, it was empty; it takes effect after a restart.",
        "`store.readers` is now 4, it was 2; it takes effect after a restart.",
    ]
    assert watch.poll() is None


def test_settings_pending_a_restart_are_those_changed_since_the_start(profile: Profile) -> None:
    watch = SettingsWatch(profile, {})
    write_file(profile.config_file, "[store]\nreaders = 4\n")
    assert [changed.key for changed in poll(watch).restart] == ["store.readers"]
    write_file(profile.config_file, "[store]\nreaders = 4\nconnections = 8\n")
    assert [changed.key for changed in poll(watch).restart] == ["store.readers", "store.connections"]
    write_file(profile.config_file, "")
    assert poll(watch).restart == ()


def test_faults_are_reported_and_the_old_settings_stay_in_force(profile: Profile) -> None:
    write_file(profile.config_file, '[log]\nlevel = "error"\n')
    watch = SettingsWatch(profile, {})
    write_file(profile.config_file, '[log]\nlevel = "loud"\n')
    change = poll(watch)
    assert [fault.key for fault in change.faults] == ["log.level"]
    assert change.settings.log.level == watch.loaded.settings.log.level == "error"
    assert (change.live, change.restart) == ((), ())
    assert watch.poll() is None
    write_file(profile.config_file, '[log]\nlevel = "debug"\n')
    assert poll(watch).settings.log.level == "debug"


def test_a_removed_file_brings_the_defaults_back(profile: Profile) -> None:
    write_file(profile.config_file, '[log]\nlevel = "error"\n')
    watch = SettingsWatch(profile, {})
    profile.config_file.unlink()
    assert poll(watch).settings.log.level == "info"


def test_environment_still_overrides_a_changed_file(profile: Profile) -> None:
    watch = SettingsWatch(profile, {"TALARIA__LOG__LEVEL": "error"})
    write_file(profile.config_file, '[log]\nlevel = "debug"\n')
    assert watch.poll() is None


def test_secrets_are_reported_by_name_only(profile: Profile) -> None:
    watch = SettingsWatch(profile, {})
    store_secret(profile, "OPENAI_API_KEY", "hidden-one")
    change = poll(watch)
    assert change.secrets.get("OPENAI_API_KEY") == "hidden-one"
    assert [changed.sentence for changed in change.live] == ["`OPENAI_API_KEY` was added."]
    assert change.restart == ()
    store_secret(profile, "TELEGRAM_BOT_TOKEN", "hidden")
    added = ["`TELEGRAM_BOT_TOKEN` was added; it takes effect after a restart."]
    assert [changed.sentence for changed in poll(watch).restart] == added
    store_secret(profile, "TELEGRAM_BOT_TOKEN", "hidden-two")
    assert [changed.sentence for changed in poll(watch).restart] == added
    remove_secret(profile, "TELEGRAM_BOT_TOKEN")
    assert poll(watch).restart == ()


def test_secrets_with_new_faults_are_not_applied(profile: Profile) -> None:
    store_secret(profile, "OPENAI_API_KEY", "old")
    watch = SettingsWatch(profile, {})
    write_file(profile.secrets_file, "OPENAI_API_KEY='new\n")
    change = poll(watch)
    assert [fault.line for fault in change.faults] == [1]
    assert change.secrets.get("OPENAI_API_KEY") == "old"


def test_a_watch_does_not_start_on_settings_with_faults(profile: Profile) -> None:
    write_file(profile.config_file, "[store]\nreaders = 0\n")
    with pytest.raises(SettingsInvalid):
        SettingsWatch(profile, {})


def test_missing_profile_folder_changes_no_settings(tmp_path: Path) -> None:
    profile = Profile("default", tmp_path / "profile")
    profile.folder.mkdir()
    write_file(profile.config_file, "[access]\neveryone = true\n")
    watch = SettingsWatch(profile, {})
    profile.folder.rename(tmp_path / "away")
    assert watch.poll() is None
    (tmp_path / "away").rename(profile.folder)
    assert watch.poll() is None
    assert watch.loaded.settings.access.everyone
