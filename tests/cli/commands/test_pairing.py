import json
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program
from tests.cli.stored_sessions import read, write

from talaria.access.browsers import read_browsers
from talaria.access.pairing import RULES, offer_browser_code, offer_code
from talaria.contracts.stores.access import PairedPerson

ANN, BEN = PairedPerson("telegram", "12345", "Ann"), PairedPerson("matrix", "@ben:example.org")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def create_code(program: Program, person: PairedPerson) -> str:
    code = write(program, lambda tx: offer_code(tx, person))
    assert code is not None
    return code


def test_lists_without_entries_are_empty(program: Program) -> None:
    for action in ("list", "people"):
        assert program.run("pairing", action) == Outcome(0, "")
        assert program.run("pairing", action, "--json") == Outcome(0, "[]\n")
    assert "No pending requests" in program.run_on_terminal("pairing", "list").out
    assert "Nobody has been approved" in program.run_on_terminal("pairing", "people").out


def test_a_pending_sender_is_approved_by_code_and_revoked(program: Program) -> None:
    code = create_code(program, ANN)
    create_code(program, BEN)
    assert program.run("pairing", "list").out == (
        "telegram\t12345\tAnn\tjust now\nmatrix\t@ben:example.org\t\tjust now\n"
    )
    approved = program.run("pairing", "approve", "telegram", f"{code[:4].lower()}-{code[4:]}")
    assert (approved.code, approved.out) == (0, "Ann (12345) can now talk to the agent on telegram.\n")
    assert "talaria config set access.owners telegram:12345" in approved.err
    people = json.loads(program.run("pairing", "people", "--json").out)
    assert [(one["platform"], one["user_id"], one["name"]) for one in people] == [("telegram", "12345", "Ann")]
    assert program.run("pairing", "people", "matrix").out == ""
    assert program.run("pairing", "people", "telegram").out.startswith("telegram\t12345\tAnn\t20")
    assert program.run("pairing", "revoke", "telegram", "12345") == Outcome(
        0, "Ann (12345) can no longer talk to the agent on telegram.\n"
    )
    assert read(program, lambda tx: tx.pairing.people()) == []


def test_json_output_has_approved_and_revoked_senders(program: Program) -> None:
    code = create_code(program, BEN)
    approved = json.loads(program.run("pairing", "approve", "matrix", code, "--json").out)
    assert (approved["user_id"], approved["platform"]) == ("@ben:example.org", "matrix")
    assert json.loads(program.run("pairing", "revoke", "matrix", "@ben:example.org", "--json").out) == approved


def test_approving_with_a_configured_owner_gives_no_hint(program: Program) -> None:
    code = create_code(program, BEN)
    owned = program.run("pairing", "approve", "matrix", code, env={"TALARIA__ACCESS__OWNERS": "telegram:1"})
    assert (owned.code, owned.err) == (0, "")


def test_a_wrong_code_is_refused_and_counted(program: Program) -> None:
    code = create_code(program, ANN)
    for _ in range(RULES.failures):
        refused = program.run("pairing", "approve", "telegram", "AAAAAAAA")
        assert (refused.code, refused.out) == (1, "")
        assert "`AAAAAAAA` isn't a valid code on telegram" in refused.err
    locked = program.run("pairing", "approve", "telegram", code)
    assert locked.code == 1
    assert "Too many wrong codes for telegram" in locked.err


def test_malformed_codes_are_reported_and_not_counted(program: Program) -> None:
    assert "There is no valid pairing code on telegram" in program.run("pairing", "approve", "telegram", "ABCDEFGH").err
    code = create_code(program, ANN)
    assert "Requests are pending on telegram." in program.run("pairing", "approve", "telegarm", code).err
    for _ in range(RULES.failures):
        assert "`123` isn't a valid code" in program.run("pairing", "approve", "telegram", "123").err
    assert program.run("pairing", "approve", "Telegram", code).code == 0
    assert "`talaria pairing people`" in program.run("pairing", "revoke", "telegram", "999").err


def test_revoking_a_sender_allowed_by_settings_is_reported(program: Program) -> None:
    code = create_code(program, ANN)
    assert program.run("pairing", "approve", "telegram", code).code == 0
    allowed = {"TALARIA__ACCESS__ALLOWED": "telegram:12345"}
    assert "still name telegram:12345" in program.run("pairing", "revoke", "telegram", "12345", env=allowed).err


def test_control_characters_in_a_sender_name_are_escaped(program: Program) -> None:
    create_code(program, PairedPerson("telegram", "6", "\x1b[2JEve\n"))
    shown = program.run_on_terminal("pairing", "list").out
    assert "\x1b[2J" not in shown
    assert "Eve" in shown


def test_the_doctor_warns_about_open_access_and_unknown_names(program: Program) -> None:
    folder = program.home / "profiles" / "default"
    folder.mkdir(parents=True, mode=0o700)
    file = folder / "config.toml"

    def run_access_check(text: str) -> list[tuple[str, str]]:
        file.write_text(text)
        file.chmod(0o600)
        checks = {one["check"]: one for one in json.loads(program.run("doctor", "--offline", "--json").out)}
        return [(one["state"], one["found"]) for one in checks["access"]["findings"]]

    assert [state for state, _ in run_access_check("")] == ["ok"]
    ((state, sentence),) = run_access_check("[access]\neveryone = true\n")
    assert (state, "access.everyone" in sentence) == ("warning", True)
    ((state, sentence),) = run_access_check("[platforms.telegram]\neveryone = true\n[platforms.matrix]\n")
    assert (state, "platforms.telegram.everyone" in sentence) == ("warning", True)
    names = '[access]\nowners = ["anna"]\n[access.slash_access]\nmodel = ["owner", "bem"]\n[people.ann]\n[people.ben]\n'
    assert run_access_check(names) == [
        ("fault", "`access.owners` names an unknown person, `anna`; the nearest is `ann`."),
        ("fault", "`access.slash_access.model` names an unknown person, `bem`; the nearest is `ben`."),
    ]


def test_browser_is_approved_for_a_person(program: Program) -> None:
    assert program.run("config", "set", "people.alice.ids", "telegram:7").code == 0
    offer = write(program, lambda tx: offer_browser_code(tx, "Firefox on Linux"))
    assert offer is not None
    refused = program.run("pairing", "approve", "web", offer[0], "--person", "eve")
    assert (refused.code, "has no `eve`" in refused.err) == (1, True)
    approved = program.run("pairing", "approve", "web", offer[0], "--person", "alice")
    assert (approved.code, approved.out) == (0, "Firefox on Linux is now signed in as alice.\n")
    (browser,) = read(program, read_browsers).values()
    assert browser.person == "alice"
    assert program.run("pairing", "approve", "telegram", "ABCDEFGH", "--person", "alice").code == 1


def test_refused_pairing_request_cannot_be_approved(program: Program) -> None:
    code = create_code(program, ANN)
    assert "no longer works" in program.run("pairing", "refuse", "telegram", "12345").out
    assert program.run("pairing", "approve", "telegram", code).code == 1
    assert program.run("pairing", "refuse", "telegram", "12345", "--json").code == 1
