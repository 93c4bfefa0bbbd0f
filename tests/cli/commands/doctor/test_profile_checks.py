"""Checks of the profile: files, settings, keys, access and the store."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.cli.commands.doctor.doctor_report import KEY, folder, found, mode, write_private
from tests.cli.stored_sessions import converse, read, said

from talaria.contracts.stores.sessions import NewSession, SessionFilter


def test_a_missing_folder_is_made_when_asked_for(program: Program) -> None:
    seen = program.run("doctor", "--offline", "--fix")
    path = program.home / "profiles" / "default"
    assert found(seen, "files") == [("repaired", f"Created {path}."), ("ok", f"{path} is private.")]
    assert mode(path) == 0o700


def test_every_fault_of_the_settings_is_reported_and_the_rest_still_looked_at(program: Program) -> None:
    file = write_private(folder(program) / "config.toml", "[store]\nreaders = 0\n[log]\nlevl = 1\n")
    converse(program, NewSession(source="cli"))
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    told = found(seen, "settings")
    assert [state for state, _ in told] == ["fault", "fault"]
    assert told[0][1].startswith(f"{file}, line 2: `store.readers` must be")
    assert "`log.level`" in told[1][1]
    assert found(seen, "store") == [("warning", "The store wasn't checked, because the settings have faults.")]
    assert found(seen, "disk")[0][0] == "ok"
    assert (
        found(seen, "model") == found(seen, "tools") == [("warning", "Not checked, because the settings have faults.")]
    )
    assert "2 faults and 7 warnings in the profile default." in seen.out


@pytest.mark.parametrize("text", ["[store", "\x00", '[cli]\ncolor = "pink"\n'])
def test_settings_that_cannot_be_read_are_no_reason_to_break_off(program: Program, text: str) -> None:
    write_private(folder(program) / "config.toml", text)
    for words in (["doctor", "--offline"], ["doctor", "--offline", "--fix"], ["doctor", "--offline", "--json"]):
        seen = program.run(*words)
        assert (seen.code, seen.err) == (1, "")
    assert len(json.loads(seen.out)) == 16


def test_secrets_that_others_can_read_are_a_fault_until_they_are_private(program: Program) -> None:
    file = folder(program) / ".env"
    file.write_text("OPENAI_API_KEY=sk-hidden-and-long-enough\n")
    file.chmod(0o644)
    seen = program.run("doctor", "--offline")
    assert seen.code == 1
    assert found(seen, "files") == [("fault", f"Other users can access {file} (mode 0644).")]
    assert f"→ `chmod 600 {file}` makes it private. `talaria doctor --fix` does this for you.\n" in seen.out
    assert [state for state, _ in found(seen, "keys")] == ["ok"]
    mended = program.run("doctor", "--offline", "--fix")
    assert mended.code == 0
    assert ("repaired", f"Set {file} to mode 0600.") in found(mended, "files")
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
    for words in (["doctor", "--offline"], ["doctor", "--offline", "--json"]):
        assert "hidden" not in program.run(*words, env=KEY).out
    told = found(program.run("doctor", "--offline", env=KEY), "keys")
    assert ("ok", f"GROQ_API_KEY ****ough, from {file}:1.") in told
    assert len(told) == 3


def test_no_key_is_no_warning_by_itself(program: Program) -> None:
    assert found(program.run("doctor", "--offline"), "keys") == [("ok", "No keys or tokens are set.")]


def test_lines_of_the_secrets_file_that_make_no_sense_are_faults(program: Program) -> None:
    write_private(folder(program) / ".env", "what is this\n")
    seen = program.run("doctor", "--offline")
    assert seen.code == 1
    assert found(seen, "keys")[0][0] == "fault"
    assert "line 1" in found(seen, "keys")[0][1]


def test_an_api_without_keys_is_reported(program: Program) -> None:
    program.run("config", "set", "api.keyless", "true")
    reported = [sentence for state, sentence in found(program.run("doctor"), "access") if state == "warning"]
    assert any("without a key: `api.keyless` is on" in sentence for sentence in reported)


def test_a_server_that_cannot_be_reached_is_a_fault_without_its_password(program: Program) -> None:
    url = {"TALARIA__STORE__URL": "postgresql://me:hidden@127.0.0.1:1/db", "TALARIA__STORE__BUSY_TIMEOUT_SECONDS": "1"}
    seen = program.run("doctor", "--offline", env=url)
    assert (seen.code, seen.err) == (1, "")
    assert found(seen, "store")[0][0] == "fault"
    assert "hidden" not in seen.out


def damage(program: Program) -> Path:
    """Fill a store and overwrite the middle of its file."""
    for number in range(30):
        converse(
            program, NewSession(source="cli", title=f"Session {number}"), *(said("words " * 50) for _ in range(20))
        )
    file = folder(program) / "talaria.db"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 16 * 4096] = b"\xff" * (16 * 4096)
    file.write_bytes(content)
    return file


def test_a_damaged_store_is_found_and_recovered_with_the_old_file_kept(program: Program) -> None:
    file = damage(program)
    before = file.read_bytes()
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    ((state, sentence),) = found(seen, "store")
    assert (state, sentence.startswith("The store is damaged.")) == ("fault", True)
    assert file.read_bytes() == before
    mended = program.run("doctor", "--offline", "--fix")
    assert (mended.code, mended.err) == (0, "")
    told = found(mended, "store")
    assert [state for state, _ in told] == ["repaired", "ok"]
    assert any(path.name in told[0][1] and path.read_bytes() == before for path in folder(program).iterdir())
    assert len(read(program, lambda store: store.sessions.find(SessionFilter(archived=None)))) > 10
    assert program.run("doctor", "--offline").code == 0


@pytest.mark.parametrize("content", [b"not a database at all\n" * 500, b"SQLite format 3\x00" + b"\xff" * 8000])
def test_a_file_that_is_no_database_is_kept_aside(program: Program, content: bytes) -> None:
    file = folder(program) / "talaria.db"
    file.write_bytes(content)
    file.chmod(0o600)
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (1, "")
    assert found(seen, "store")[0][0] == "fault"
    assert program.run("doctor", "--offline", "--fix").code == 0
    assert any(path.read_bytes() == content for path in folder(program).glob("talaria.db?*"))


def test_store_that_only_its_damaged_copy_is_left_of_is_recovered(program: Program) -> None:
    file = damage(program)
    file.rename(file.with_name("talaria.db.damaged-20261115T220610582994"))
    listed = program.run("sessions", "list")
    assert (listed.code, listed.out) == (1, "")
    assert "talaria doctor --fix" in listed.err
    assert program.run("doctor").code == 1
    assert program.run("doctor", "--fix").code == 0
    assert len(read(program, lambda store: store.sessions.find(SessionFilter(archived=None)))) > 10


def test_empty_store_is_a_fault_and_not_filled(program: Program) -> None:
    converse(program, NewSession(source="cli"))
    file = folder(program) / "talaria.db"
    file.write_bytes(b"")
    for words in (["sessions", "list"], ["chat", "-q", "hello"], ["doctor"]):
        seen = program.run(*words)
        assert (seen.code, "is empty (0 bytes)" in seen.out + seen.err) == (1, True)
        assert file.stat().st_size == 0
    assert program.run("doctor", "--fix").code == 0


def test_a_folder_in_place_of_the_store_is_a_fault(program: Program) -> None:
    (folder(program) / "talaria.db").mkdir()
    for words in (["doctor", "--offline"], ["doctor", "--offline", "--fix"]):
        seen = program.run(*words)
        assert (seen.code, seen.err) == (1, "")
        assert "fault" in {state for state, _ in found(seen, "store")}
