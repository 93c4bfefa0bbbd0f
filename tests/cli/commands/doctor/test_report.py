"""The complete report: healthy and new profiles, JSON, colours."""

from tests.app.program import Program
from tests.cli.commands.doctor.doctor_report import KEY, by_check, folder, found
from tests.cli.stored_sessions import converse, text_message

from talaria.contracts.stores.sessions import NewSession


def test_healthy_profile_has_no_problems(program: Program) -> None:
    converse(program, NewSession(source="cli"), text_message("Hi"))
    seen = program.run("doctor", "--offline", env=KEY)
    assert (seen.code, seen.err) == (0, "")
    assert seen.out.endswith("\nNo problems in the profile default.\n")
    assert found(seen, "files") == [("ok", f"{folder(program)} is private.")]
    assert found(seen, "store") == [("ok", f"{folder(program)}/talaria.db opens, is up to date and undamaged.")]
    assert found(seen, "keys") == [("ok", "OPENAI_API_KEY ****ough, from environment variable OPENAI_API_KEY.")]
    assert found(seen, "python")[0][0] == found(seen, "sqlite")[0][0] == found(seen, "terminal")[0][0] == "ok"


def test_new_home_has_only_warnings_and_is_not_changed(program: Program) -> None:
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (0, "")
    assert found(seen, "files") == [("warning", f"{program.home}/profiles/default doesn't exist yet.")]
    assert found(seen, "store")[0][0] == "ok"
    assert "2 warnings in the profile default. `talaria doctor --fix` fixes 1 of them." in seen.out
    assert list(program.home.iterdir()) == []


def test_a_profile_that_does_not_exist_is_reported_once(program: Program) -> None:
    refused = program.run("doctor", "--offline", "-p", "nowhere", "--json")
    assert (refused.code, refused.out) == (1, "")
    assert "talaria profile create nowhere" in refused.err


def test_json_has_every_check_with_its_findings(program: Program) -> None:
    folder(program).chmod(0o755)
    seen = program.run("doctor", "--offline", "--json")
    results = by_check(seen)
    assert seen.code == 0
    assert list(results)[:3] == ["python", "files", "settings"]
    assert results["files"]["state"] == "warning"
    (finding,) = results["files"]["findings"]
    assert finding["fixable"]
    assert "chmod 700" in finding["repair"]
    repaired = by_check(program.run("doctor", "--offline", "--fix", "--json"))
    assert repaired["files"]["state"] == "ok"
    assert repaired["files"]["repaired"] == [f"Set {folder(program)} to mode 0700."]


def test_report_is_coloured_and_fits_a_terminal(program: Program) -> None:
    folder(program).chmod(0o755)
    seen = program.run_on_terminal("doctor", "--offline", env={"COLUMNS": "100"})
    assert seen.code == 0
    assert "\x1b[33mwarning " in seen.out
    assert "\x1b[32mok " in seen.out
    sentences = program.run_on_terminal(
        "doctor", "--offline", "--color", "never", env={"COLUMNS": "100"}
    ).out.splitlines()
    assert all(len(line) <= 100 or program.home.name in line for line in sentences)
