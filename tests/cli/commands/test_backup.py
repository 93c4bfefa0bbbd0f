"""`talaria backup` and `talaria restore`."""

import json
import stat
import threading
import zipfile
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.cli.stored_sessions import converse, opened, read, text_message

from talaria.contracts.stores.sessions import NewSession, SessionFilter


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


def test_restore_brings_back_sessions_and_settings(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Travel", "Where to?", "To the sea.")
    program.run("config", "set", "sessions.prune_after_days", "7")
    file = tmp_path / "safe.zip"
    assert program.run("backup", str(file)).code == 0
    other = Program(tmp_path / "other")
    done = other.run("restore", str(file))
    assert done.code == 0
    assert "Restored 1 session with 2 messages." in done.out
    assert other.run("config", "get", "sessions.prune_after_days").out.strip() == "7"
    assert "To the sea." in other.run("sessions", "show", "Travel").out


def test_backup_is_private_and_has_secrets_only_on_request(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Travel", "Hello")
    program.run("config", "set", "OPENAI_API_KEY", "sk-planted-0123456789")
    plain, full = tmp_path / "plain.zip", tmp_path / "full.zip"
    program.run("backup", str(plain))
    program.run("backup", str(full), "--with-secrets")
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    assert ".env" not in " ".join(zipfile.ZipFile(plain).namelist())
    assert b"sk-planted" in zipfile.ZipFile(full).read("profile/.env")


def test_existing_backup_file_is_not_overwritten_without_force(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "safe.zip"
    file.write_text("dear to me")
    refused = program.run("backup", str(file))
    assert (refused.code, file.read_text()) == (1, "dear to me")
    assert "--force" in refused.err


def test_restore_over_sessions_needs_confirmation_and_saves_a_backup_first(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Old", "before")
    file = tmp_path / "safe.zip"
    program.run("backup", str(file))
    _store_session(program, "New", "after")
    refused = program.run("restore", str(file))
    assert refused.code == 1
    assert "--yes" in refused.err
    assert program.run("restore", str(file), "--yes").code == 0
    assert _titles(program) == {"Old"}
    backup = next((program.home / "profiles" / "default" / "backups").glob("before-restore-*.zip"))
    program.run("restore", str(backup), "--yes")
    assert _titles(program) == {"Old", "New"}


@pytest.mark.parametrize("spoil", [lambda data: b"no zip at all", lambda data: data[: len(data) // 2]])
def test_invalid_or_truncated_backup_changes_nothing(program: Program, tmp_path: Path, spoil: object) -> None:
    _store_session(program, "Old", "before")
    file = tmp_path / "safe.zip"
    program.run("backup", str(file))
    assert callable(spoil)
    file.write_bytes(spoil(file.read_bytes()))
    refused = program.run("restore", str(file), "--yes")
    assert refused.code == 1
    assert "isn't a complete Talaria backup" in refused.err
    assert _titles(program) == {"Old"}


def test_corrupt_backup_changes_nothing(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Old", "before " * 500)
    file = tmp_path / "safe.zip"
    program.run("backup", str(file))
    content = bytearray(file.read_bytes())
    position = content.index(b"store/messages.jsonl") + 60
    content[position] ^= 0xFF
    file.write_bytes(content)
    assert program.run("restore", str(file), "--yes").code == 1
    assert _titles(program) == {"Old"}


def test_restore_dry_run_reports_the_content_and_changes_nothing(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Old", "before")
    file = tmp_path / "safe.zip"
    program.run("backup", str(file))
    other = Program(tmp_path / "other")
    report = other.run("restore", str(file), "--dry-run", "--json")
    assert json.loads(report.out)["rows"]["messages"] == 1
    assert not (other.home / "profiles").exists()


def test_a_profile_moves_to_postgresql_and_back(program: Program, postgres_url: str, tmp_path: Path) -> None:
    _store_session(program, "Travel", "Where to? 東京", "To the sea.")
    there, back = tmp_path / "there.zip", tmp_path / "back.zip"
    program.run("backup", str(there))
    server = {"TALARIA__STORE__URL": postgres_url, "TALARIA__STORE__SCHEMA": "moved_profile"}
    assert program.run("restore", str(there), "--only", "store", env=server).code == 0
    assert "東" in program.run("sessions", "search", "東京", env=server).out
    assert program.run("backup", str(back), env=server).code == 0
    assert _rows(there) == _rows(back)


def test_backup_is_consistent_during_concurrent_writes(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Busy", "first")
    file = tmp_path / "safe.zip"
    done = threading.Event()

    def write_repeatedly() -> None:
        with opened(program) as database:
            session = database.read(lambda tx: tx.sessions.find(SessionFilter()))[0]
            while not done.is_set():
                database.write(
                    lambda tx: tx.messages.append(session.id, [text_message("more"), text_message("and more")])
                )

    writer = threading.Thread(target=write_repeatedly)
    writer.start()
    try:
        codes = {program.run("backup", str(file), "--force").code for _ in range(3)}
    finally:
        done.set()
        writer.join()
    rows = _rows(file)
    (columns, session), messages = rows["store/sessions.jsonl"], rows["store/messages.jsonl"][1:]
    assert codes == {0}
    assert session[columns.index("last_seq")] == len(messages) > 1


def _store_session(program: Program, title: str, *texts: str) -> None:
    converse(program, NewSession(source="cli", title=title), *map(text_message, texts))


def _titles(program: Program) -> set[str]:
    return {session.title for session in read(program, lambda tx: tx.sessions.find(SessionFilter()))}


def _rows(file: Path) -> dict[str, list[list[object]]]:
    with zipfile.ZipFile(file) as archive:
        members = [name for name in archive.namelist() if name.startswith("store/")]
        return {name: [json.loads(line) for line in archive.read(name).splitlines()] for name in members}


def test_backup_contains_files_of_owner_and_agent(program: Program, tmp_path: Path) -> None:
    own = program.home / "profiles" / "default"
    names = ("BOOT.md", "SOUL.md", "commands/tea.md", "hooks/tea/HOOK.yaml", "memory/MEMORY.md",
               "personalities/duke.md", "platforms/webhook/hub.toml", "skills/tea/SKILL.md")  # fmt: skip
    for name in names:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(f"{name} of mine\n")
    _store_session(program, "Old", "before")
    file = tmp_path / "safe.zip"
    program.run("backup", str(file))
    other = Program(tmp_path / "other")
    assert other.run("restore", str(file)).code == 0
    restored = other.home / "profiles" / "default"
    assert [(restored / name).read_text() for name in names] == [f"{name} of mine\n" for name in names]


def test_backup_with_paths_outside_the_profile_is_refused(program: Program, tmp_path: Path) -> None:
    _store_session(program, "Old", "before")
    file, forged = tmp_path / "safe.zip", tmp_path / "forged.zip"
    program.run("backup", str(file))
    with zipfile.ZipFile(file) as original, zipfile.ZipFile(forged, "w") as archive:
        for name in original.namelist():
            content = original.read(name)
            if name == "manifest.json":
                content = content.replace(b'"files": []', b'"files": ["../../../outside"]')
            archive.writestr(name, content)
        archive.writestr("profile/../../../outside", "gotcha")
    refused = program.run("restore", str(forged), "--yes")
    assert refused.code == 1
    assert "doesn't belong" in refused.err
    assert not (tmp_path / "outside").exists()
