import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import SettingsInvalid
from talaria.settings.profiles import Profile
from talaria.settings.secrets import KNOWN_SECRETS, mask, read_secrets, remove_secret, store_secret


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path)


def write(profile: Profile, text: str) -> None:
    profile.secrets_file.write_text(text)
    profile.secrets_file.chmod(0o600)


def test_values_may_be_quoted_exported_and_commented(profile: Profile) -> None:
    write(
        profile,
        "# keys\n\nA=plain # comment\nexport B = 'single # no comment' # comment\n"
        'C="double \\"quoted\\"\\nline"\nD=with#hash\nE=\nF=a=b\n',
    )
    secrets = read_secrets(profile, {})
    assert secrets.faults == ()
    assert {name: secrets.get(name) for name in secrets.names()} == {
        "A": "plain",
        "B": "single # no comment",
        "C": 'double "quoted"\nline',
        "D": "with#hash",
        "F": "a=b",
    }
    assert secrets.get("E") is None
    assert str(secrets.locate("C")) == f"{profile.secrets_file}:5"


def test_the_environment_wins_over_the_file(profile: Profile) -> None:
    write(profile, "OPENAI_API_KEY=file\nGROQ_API_KEY=file\n")
    secrets = read_secrets(profile, {"OPENAI_API_KEY": "environment", "GROQ_API_KEY": "", "HOME": "/x"})
    assert secrets.get("OPENAI_API_KEY") == "environment"
    assert secrets.get("GROQ_API_KEY") == "file"
    assert secrets.names() == ("OPENAI_API_KEY", "GROQ_API_KEY")
    assert str(secrets.locate("OPENAI_API_KEY")) == "environment variable OPENAI_API_KEY"


def test_a_profile_without_a_file_has_no_secrets_and_no_faults(profile: Profile) -> None:
    secrets = read_secrets(profile, {})
    assert (secrets.names(), secrets.faults, secrets.get("X"), secrets.locate("X")) == ((), (), None, None)


def test_invalid_line_is_a_fault_that_does_not_show_its_content(profile: Profile) -> None:
    write(profile, "sk-secret\nA='open\nB=1\nB=2\nTALARIA__LOG__LEVEL=debug\n1X=3\n")
    secrets = read_secrets(profile, {})
    assert [str(fault).removeprefix(f"{profile.secrets_file}, ") for fault in secrets.faults] == [
        "line 1: This line is neither a comment nor NAME=value.",
        "line 2: The quotes around the value of `A` don't match.",
        "line 4: `B` is already set in line 3; this value wins.",
        "line 5: `TALARIA__LOG__LEVEL` has no effect here; settings belong in config.toml.",
        "line 6: This line is neither a comment nor NAME=value.",
    ]
    assert secrets.get("B") == "2"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_secrets_file_open_to_others_is_a_fault_but_is_read(profile: Profile, mode: int) -> None:
    write(profile, "A=1\n")
    profile.secrets_file.chmod(mode)
    secrets = read_secrets(profile, {})
    assert [fault.found for fault in secrets.faults] == [f"mode {mode:04o}"]
    assert "chmod 600" in str(secrets.faults[0])
    assert secrets.get("A") == "1"


def test_secrets_file_that_is_not_utf8_is_a_fault(profile: Profile) -> None:
    profile.secrets_file.write_bytes(b"A=1\nB=\xff\n")
    profile.secrets_file.chmod(0o600)
    assert [fault.line for fault in read_secrets(profile, {}).faults] == [2]
    with pytest.raises(SettingsInvalid, match="UTF-8"):
        store_secret(profile, "A", "2")


def test_storing_a_secret_preserves_comments_order_and_other_lines(profile: Profile) -> None:
    write(profile, "# mine\nA=1\nexport B=2 # old\nnonsense\nB=3")
    store_secret(profile, "B", "new value")
    store_secret(profile, "C", "3")
    assert profile.secrets_file.read_text() == "# mine\nA=1\nB='new value'\nnonsense\nC=3\n"


def test_stored_secrets_file_is_private(profile: Profile) -> None:
    store_secret(profile, "A", "1")
    assert stat.S_IMODE(profile.secrets_file.stat().st_mode) == 0o600


def test_storing_a_secret_creates_the_profile_folder(tmp_path: Path) -> None:
    profile = Profile("default", tmp_path / "home" / "profiles" / "default")
    store_secret(profile, "A", "1")
    assert read_secrets(profile, {}).get("A") == "1"


@pytest.mark.slow
@given(value=st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_stored_value_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    profile = Profile("default", tmp_path_factory.mktemp("profile"))
    store_secret(profile, "A", value)
    store_secret(profile, "B", "2")
    secrets = read_secrets(profile, {})
    assert secrets.faults == ()
    assert (secrets.get("A"), secrets.get("B")) == (value, "2")


def test_removing_a_secret_leaves_the_others(profile: Profile) -> None:
    write(profile, "# mine\nA=1\nB=2\n")
    remove_secret(profile, "A")
    assert profile.secrets_file.read_text() == "# mine\nB=2\n"
    with pytest.raises(NotFound, match="`A` isn't in"):
        remove_secret(profile, "A")


@pytest.mark.parametrize(("name", "value"), [("a b", "1"), ("", "1"), ("A", ""), ("A\nB", "1")])
def test_invalid_name_or_empty_value_of_a_secret_is_refused(profile: Profile, name: str, value: str) -> None:
    with pytest.raises(Refused):
        store_secret(profile, name, value)
    assert not profile.secrets_file.exists()


def test_mask_shows_the_end_of_long_values_only() -> None:
    assert mask("short") == "****"
    assert mask("sk-1234567890abcdefgh") == "****efgh"


def test_known_secrets_have_a_purpose_and_a_hint_without_links() -> None:
    assert len({secret.name for secret in KNOWN_SECRETS}) == len(KNOWN_SECRETS)
    for secret in KNOWN_SECRETS:
        assert secret.name.isupper()
        assert secret.purpose.endswith(".")
        assert secret.hint.endswith(".")
        assert "://" not in secret.hint
