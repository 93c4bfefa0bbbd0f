import stat
from pathlib import Path

import pytest

from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import ProfileUnusable
from talaria.settings.profiles import Profiles, find_home


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path / "home")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_home_is_talaria_home_or_a_hidden_folder(tmp_path: Path) -> None:
    assert find_home({"HOME": "/people/me"}) == Path("/people/me/.talaria")
    assert find_home({"HOME": "/people/me", "TALARIA_HOME": ""}) == Path("/people/me/.talaria")
    assert find_home({"HOME": "/people/me", "TALARIA_HOME": str(tmp_path)}) == tmp_path
    assert find_home({"HOME": "/people/me", "TALARIA_HOME": "~/elsewhere"}) == Path("/people/me/elsewhere")
    assert find_home({"TALARIA_HOME": "here"}) == Path.cwd() / "here"
    assert find_home({}).is_absolute()


def test_missing_home_has_a_default_profile_and_is_not_created(profiles: Profiles) -> None:
    assert [profile.name for profile in profiles.list()] == ["default"]
    assert profiles.active() == profiles.get("default")
    assert not profiles.active().exists
    assert not profiles.home.exists()


def test_a_profile_has_its_own_files(profiles: Profiles) -> None:
    work = profiles.create("work")
    assert work.folder == profiles.home / "profiles" / "work"
    assert work.config_file == work.folder / "config.toml"
    assert work.secrets_file == work.folder / ".env"
    assert work.database_file == work.folder / "talaria.db"
    assert {work.backups_folder.parent, work.logs_folder.parent} == {work.folder}


def test_profile_folders_are_private(profiles: Profiles) -> None:
    work = profiles.create("work")
    assert [mode(path) for path in (profiles.home, profiles.home / "profiles", work.folder)] == [0o700] * 3


def test_active_profile_is_stored(profiles: Profiles) -> None:
    profiles.create("work")
    profiles.use("work")
    assert Profiles(profiles.home).active().name == "work"
    assert [profile.name for profile in profiles.list()] == ["work"]
    profiles.use("default")
    assert [profile.name for profile in profiles.list()] == ["default", "work"]


def test_creating_an_existing_profile_is_refused(profiles: Profiles) -> None:
    profiles.create("work")
    with pytest.raises(Refused, match="already exists"):
        profiles.create("work")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "A", "a b", "ä", "a" * 33, "a\n"])
def test_invalid_profile_name_is_refused(profiles: Profiles, name: str) -> None:
    for attempt in (profiles.create, profiles.get, profiles.use, profiles.delete):
        with pytest.raises(Refused, match="isn't a valid profile name"):
            attempt(name)


def test_unknown_profile_error_names_the_nearest_one(profiles: Profiles) -> None:
    profiles.create("work")
    with pytest.raises(NotFound, match="`wrok` is not a known profile; the nearest is `work`"):
        profiles.use("wrok")
    with pytest.raises(NotFound, match="nearest is `work`"):
        profiles.delete("wrok")


def test_deleting_a_profile_does_not_follow_symlinks(profiles: Profiles, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    work = profiles.create("work")
    work.logs_folder.mkdir()
    (work.logs_folder / "today").write_text("x")
    (work.folder / "link").symlink_to(outside)
    profiles.delete("work")
    assert not work.exists
    assert list((profiles.home / "profiles").iterdir()) == []
    assert (outside / "kept").exists()


def test_active_profile_is_not_deleted(profiles: Profiles) -> None:
    profiles.create("work")
    profiles.use("work")
    with pytest.raises(Refused, match="`work` is the active profile"):
        profiles.delete("work")
    with pytest.raises(NotFound):
        profiles.delete("default")


def test_a_missing_active_profile_is_reported_and_can_be_replaced(profiles: Profiles) -> None:
    work = profiles.create("work")
    profiles.use("work")
    work.folder.rmdir()
    with pytest.raises(NotFound, match="The active profile, `work`, doesn't exist"):
        profiles.active()
    assert profiles.active_name() == "work"
    assert profiles.use("default").name == "default"


def test_invalid_name_of_the_active_profile_is_reported(profiles: Profiles) -> None:
    profiles.home.mkdir()
    (profiles.home / "active").write_bytes(b"../\xff")
    with pytest.raises(Refused, match="doesn't name a profile"):
        profiles.active()
    assert profiles.use("default").name == "default"


def test_home_that_cannot_be_created_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileUnusable, match="file can't be created: File exists"):
        Profiles(tmp_path / "file" / "home").create("work")
