"""Workspace of a session: paths, snapshots and environment variables."""

from pathlib import Path

import pytest

from talaria.tools.workspace import LocalWorkspace, remove_secrets


def test_paths_are_resolved_like_in_a_shell(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "here", {"HOME": str(tmp_path / "person")})
    assert workspace.resolve("a/../b.txt") == tmp_path / "here" / "b.txt"
    assert workspace.resolve("../x") == tmp_path / "x"
    assert workspace.resolve("~/notes") == tmp_path / "person" / "notes"
    assert workspace.resolve("~") == tmp_path / "person"
    assert workspace.resolve("/etc/hosts") == Path("/etc/hosts")
    assert workspace.resolve(".") == tmp_path / "here"


def test_snapshot_restores_folder_and_environment_changes(tmp_path: Path) -> None:
    before = LocalWorkspace(tmp_path, {"PATH": "/bin", "LANG": "C", "EDITOR": "vi"})
    before.move_to(tmp_path / "sub")
    before.set_environment({"PATH": "/bin", "LANG": "de_DE", "MODE": "fast", "_": "x", "SHLVL": "3"})
    after = LocalWorkspace(tmp_path, {"PATH": "/usr/bin", "LANG": "C", "EDITOR": "vi"})
    after.restore(before.snapshot())
    assert after.folder == tmp_path / "sub"
    assert after.environment == {"PATH": "/usr/bin", "LANG": "de_DE", "MODE": "fast"}


def test_secrets_and_session_variables_are_not_stored(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path, {})
    workspace.set_environment(
        {"MY_TOKEN": "hush", "TALARIA_SESSION_ID": "s1", "RAW": b"\xff".decode("utf-8", "surrogateescape"), "A": "1"}
    )
    text = workspace.snapshot()
    assert workspace.environment["MY_TOKEN"] == "hush"
    assert ("hush" in text, "s1" in text, "RAW" in text, '"A":"1"' in text) == (False, False, False, True)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASS", "APIKEY", "NPM_AUTH_TOKEN",
     "GH_PAT", "MYSECRET", "aws_credentials", "HF_TOKEN", "SSH_KEY_PASSPHRASE", "STRIPE_KEYS"],
)  # fmt: skip
def test_variables_with_secret_names_are_removed(name: str) -> None:
    assert remove_secrets({name: "x"}) == {}


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "KEYBOARD", "PATTERN", "LANG", "MONKEY", "XAUTHORITY", "COMPASS"]
)
def test_variables_with_ordinary_names_remain(name: str) -> None:
    assert remove_secrets({name: "x"}) == {name: "x"}


def test_variable_with_a_password_in_its_url_is_removed() -> None:
    assert remove_secrets({"DATABASE_URL": "postgres://me:pw@host/db", "SITE": "https://host:80/x"}) == {
        "SITE": "https://host:80/x"
    }
