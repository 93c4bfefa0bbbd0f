"""Checks of the profile: files, settings, keys, access and the store."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.cli.commands.doctor.doctor_report import KEY, folder, found, mode, write_private
from tests.cli.stored_sessions import converse, read, text_message

from talaria.contracts.stores.sessions import NewSession, SessionFilter


def test_fix_creates_a_missing_profile_folder(program: Program) -> None:
    seen = program.run("doctor", "--offline", "--fix")
    path = program.home / "profiles" / "default"
    assert found(seen, "files") == [("repaired", f"Created {path}."), ("ok", f"{path} is private.")]
    assert mode(path) == 0o700


def test_all_faults_of_the_settings_are_reported_and_other_checks_still_run(program: Program) -> None:
    file = write_private(folder(program) / "config.toml", "[store]\nreaders = 0\n[log]\nlevl = 1\n")
    converse(program, NewSession(source="cli"))
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    findings = found(seen, "settings")
    assert [state for state, _ in findings] == ["fault", "fault"]
    assert findings[0][1].startswith(f"{file}, line 2: `store.readers` must be")
    assert "`log.level`" in findings[1][1]
    assert found(seen, "store") == [("warning", "The store wasn't checked, because the settings have faults.")]
    assert found(seen, "disk")[0][0] == "ok"
    assert (
        found(seen, "model") == found(seen, "tools") == [("warning", "Not checked, because the settings have faults.")]
    )
    assert "2 faults and 7 warnings in the profile default." in seen.out


@pytest.mark.parametrize("text", ["[store", "\x00", '[cli]\ncolor = "pink"\n'])
def test_unreadable_settings_do_not_stop_the_doctor(program: Program, text: str) -> None:
    write_private(folder(program) / "config.toml", text)
    for arguments in (["doctor", "--offline"], ["doctor", "--offline", "--fix"], ["doctor", "--offline", "--json"]):
        seen = program.run(*arguments)
        assert (seen.code, seen.err) == (1, "")
    assert len(json.loads(seen.out)) == 16


def test_secrets_file_readable_by_others_is_a_fault_and_can_be_fixed(program: Program) -> None:
    file = folder(program) / ".env"
    file.write_text("OPENAI_API_KEY=sk-hidden-and-long-enough\n")
    file.chmod(0o644)
    seen = program.run("doctor", "--offline")
    assert seen.code == 1
    assert found(seen, "files") == [("fault", f"Other users can access {file} (mode 0644).")]
    assert f"→ `chmod 600 {file}` makes it private. `talaria doctor --fix` does this for you.\n" in seen.out
    assert [state for state, _ in found(seen, "keys")] == ["ok"]
    repaired = program.run("doctor", "--offline", "--fix")
    assert repaired.code == 0
    assert ("repaired", f"Set {file} to mode 0600.") in found(repaired, "files")
    assert mode(file) == 0o600


def test_modes_of_folder_settings_and_store_are_repaired(program: Program) -> None:
    converse(program, NewSession(source="cli"))
    write_private(folder(program) / "config.toml", "").chmod(0o664)
    folder(program).chmod(0o755)
    (folder(program) / "talaria.db").chmod(0o400)
    seen = program.run("doctor", "--offline")
    assert sorted(state for state, _ in found(seen, "files")) == ["fault", "warning", "warning"]
    assert program.run("doctor", "--offline", "--fix").code == 0
    assert mode(folder(program)) == 0o700
    assert mode(folder(program) / "config.toml") == mode(folder(program) / "talaria.db") == 0o600


def test_keys_are_named_with_their_origin_and_never_shown(program: Program) -> None:
    file = write_private(folder(program) / ".env", "GROQ_API_KEY=gsk-hidden-and-long-enough\nOTHER=hidden\n")
    for arguments in (["doctor", "--offline"], ["doctor", "--offline", "--json"]):
        assert "hidden" not in program.run(*arguments, env=KEY).out
    findings = found(program.run("doctor", "--offline", env=KEY), "keys")
    assert ("ok", f"GROQ_API_KEY ****ough, from {file}:1.") in findings
    assert len(findings) == 3


def test_missing_keys_are_not_a_warning(program: Program) -> None:
    assert found(program.run("doctor", "--offline"), "keys") == [("ok", "No keys or tokens are set.")]


def test_invalid_lines_of_the_secrets_file_are_faults(program: Program) -> None:
    write_private(folder(program) / ".env", "what is this\n")
    seen = program.run("doctor", "--offline")
    assert seen.code == 1
    assert found(seen, "keys")[0][0] == "fault"
    assert "line 1" in found(seen, "keys")[0][1]


def test_keyless_api_is_reported(program: Program) -> None:
    program.run("config", "set", "api.keyless", "true")
    findings = found(program.run("doctor", "--offline"), "access")
    assert any("without a key: `api.keyless` is on" in sentence for state, sentence in findings if state == "warning")


def test_unreachable_store_is_a_fault_shown_without_its_password(program: Program) -> None:
    url = {"TALARIA__STORE__URL": "postgresql://me:hidden@127.0.0.1:1/db", "TALARIA__STORE__BUSY_TIMEOUT_SECONDS": "1"}
    seen = program.run("doctor", "--offline", env=url)
    assert (seen.code, seen.err) == (1, "")
    assert found(seen, "store")[0][0] == "fault"
    assert "hidden" not in seen.out


def damage(program: Program) -> Path:
    """Fill a store and overwrite the middle of its file."""
    for number in range(30):
        converse(
            program,
            NewSession(source="cli", title=f"Session {number}"),
            *(text_message("words " * 50) for _ in range(20)),
        )
    file = folder(program) / "talaria.db"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 16 * 4096] = b"\xff" * (16 * 4096)
    file.write_bytes(content)
    return file


def test_damaged_store_is_recovered_and_the_old_file_preserved(program: Program) -> None:
    file = damage(program)
    before = file.read_bytes()
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    ((state, sentence),) = found(seen, "store")
    assert (state, sentence.startswith("The store is damaged.")) == ("fault", True)
    assert file.read_bytes() == before
    repaired = program.run("doctor", "--offline", "--fix")
    assert (repaired.code, repaired.err) == (0, "")
    findings = found(repaired, "store")
    assert [state for state, _ in findings] == ["repaired", "ok"]
    assert any(path.name in findings[0][1] and path.read_bytes() == before for path in folder(program).iterdir())
    assert len(read(program, lambda store: store.sessions.find(SessionFilter(archived=None)))) > 10
    assert program.run("doctor", "--offline").code == 0


@pytest.mark.parametrize("content", [b"not a database at all\n" * 500, b"SQLite format 3\x00" + b"\xff" * 8000])
def test_store_file_that_is_no_database_is_moved_aside(program: Program, content: bytes) -> None:
    file = folder(program) / "talaria.db"
    file.write_bytes(content)
    file.chmod(0o600)
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    assert found(seen, "store")[0][0] == "fault"
    assert program.run("doctor", "--offline", "--fix").code == 0
    assert any(path.read_bytes() == content for path in folder(program).glob("talaria.db?*"))


def test_missing_store_is_recovered_from_its_damaged_copy(program: Program) -> None:
    file = damage(program)
    file.rename(file.with_name("talaria.db.damaged-20261115T220610582994"))
    listed = program.run("sessions", "list")
    assert (listed.code, listed.out) == (1, "")
    assert "talaria doctor --fix" in listed.err
    assert program.run("doctor", "--offline").code == 1
    assert program.run("doctor", "--offline", "--fix").code == 0
    assert len(read(program, lambda store: store.sessions.find(SessionFilter(archived=None)))) > 10


def test_empty_store_is_a_fault_and_not_filled(program: Program) -> None:
    converse(program, NewSession(source="cli"))
    file = folder(program) / "talaria.db"
    file.write_bytes(b"")
    for arguments in (["sessions", "list"], ["chat", "-q", "hello"], ["doctor", "--offline"]):
        seen = program.run(*arguments)
        assert (seen.code, "is empty (0 bytes)" in seen.out + seen.err) == (1, True)
        assert file.stat().st_size == 0
    assert program.run("doctor", "--offline", "--fix").code == 0


def test_a_folder_in_place_of_the_store_is_a_fault(program: Program) -> None:
    (folder(program) / "talaria.db").mkdir()
    for arguments in (["doctor", "--offline"], ["doctor", "--offline", "--fix"]):
        seen = program.run(*arguments)
        assert (seen.code, seen.err) == (1, "")
        assert "fault" in {state for state, _ in found(seen, "store")}
