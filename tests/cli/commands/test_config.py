import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Outcome, Program

from talaria.observability.shutdown_report import running_mark, start_report


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def folder(program: Program) -> Path:
    return program.home / "profiles" / "default"


def write_config(program: Program, text: str) -> Path:
    folder(program).mkdir(parents=True, mode=0o700)
    file = folder(program) / "config.toml"
    file.write_text(text)
    return file


def pipe(program: Program, text: str, *arguments: str) -> Outcome:
    done = subprocess.run(
        [TALARIA, *arguments], env=program.environment(), input=text, capture_output=True, text=True, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def editor(program: Program, script: str) -> dict[str, str]:
    """Return variables for an editor that runs ``script`` with the file as its first argument."""
    file = program.home / "editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return {"EDITOR": str(file), "VISUAL": ""}


def test_config_path_is_printed_even_if_the_file_is_missing(program: Program) -> None:
    assert program.run("config", "path") == Outcome(0, f"{folder(program)}/config.toml\n")
    paths = json.loads(program.run("config", "path", "--json").out)
    assert paths["profile"] == "default"
    assert paths["secrets_file"] == f"{folder(program)}/.env"


def test_show_lists_every_key_with_its_origin(program: Program) -> None:
    write_config(program, '[log]\nlevel = "debug"\n')
    shown = program.run("config", "show", env={"TALARIA__STORE__READERS": "3"})
    assert shown.code == 0
    assert "log.level\tdebug\tconfig.toml:2\n" in shown.out
    assert "store.readers\t3\tenvironment variable TALARIA__STORE__READERS\n" in shown.out
    assert "cli.color\tauto\tdefault\n" in shown.out
    changed = program.run("config", "show", "--changed", "--json", env={"TALARIA__STORE__READERS": "3"})
    assert [(entry["key"], entry["value"]) for entry in json.loads(changed.out)] == [
        ("store.readers", 3),
        ("log.level", "debug"),
    ]


def test_show_hides_secrets(program: Program) -> None:
    write_config(program, '[store]\nurl = "postgresql://me:hidden@host/db"\n')
    (folder(program) / ".env").write_text("OPENAI_API_KEY=sk-hidden-and-long-enough\nOTHER=hidden\n")
    (folder(program) / ".env").chmod(0o600)
    env = {"GROQ_API_KEY": "hidden"}
    for arguments in (["show"], ["show", "--json"], ["get", "store.url"], ["get", "OPENAI_API_KEY", "--json"]):
        shown = program.run("config", *arguments, env=env)
        assert shown.code == 0
        assert "****" in shown.out
        assert "hidden" not in shown.out + shown.err
    assert "GROQ_API_KEY\t****\tenvironment variable GROQ_API_KEY\n" in program.run("config", "show", env=env).out


def test_show_reports_faults_on_stderr(program: Program) -> None:
    write_config(program, "[store]\nreaders = 0\n")
    shown = program.run("config", "show")
    assert shown.code == 0
    assert "store.readers\t2\t" in shown.out
    assert "line 2: `store.readers` must be" in shown.err


def test_get_prints_the_value_alone(program: Program) -> None:
    write_config(program, "[store]\nreaders = 4\n")
    assert program.run("config", "get", "store.readers") == Outcome(0, "4\n")
    assert json.loads(program.run("config", "get", "store.readers", "--json").out)["value"] == 4


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("store.raeders", "`store.raeders` is not a known key; the nearest is `store.readers`."),
        ("OPENAI_API_KEY", "`OPENAI_API_KEY` isn't set. `talaria config set OPENAI_API_KEY -` stores it."),
        ("MINE_API_KEY", "`MINE_API_KEY` isn't set. `talaria config set MINE_API_KEY -` stores it."),
    ],
)
def test_get_of_an_unknown_or_unset_key_gives_a_hint(program: Program, key: str, sentence: str) -> None:
    assert program.run("config", "get", key) == Outcome(1, "", f"talaria: {sentence}\n")


def test_set_reports_the_value_the_file_and_overriding_variables(program: Program) -> None:
    file = folder(program) / "config.toml"
    assert program.run("config", "set", "store.readers", "4") == Outcome(0, f"Set store.readers = 4 in {file}.\n", "")
    assert program.run("config", "get", "store.readers").out == "4\n"
    overridden = program.run("config", "set", "log.level", "info", env={"TALARIA__LOG__LEVEL": "error"})
    assert "TALARIA__LOG__LEVEL is set and overrides" in overridden.err


def test_set_refuses_an_invalid_value_and_writes_nothing(program: Program) -> None:
    refused = program.run("config", "set", "store.readers", "99")
    assert refused.code == 1
    assert refused.err.startswith("talaria: `store.readers` must be a whole number from 1 to 16")
    assert not (folder(program) / "config.toml").exists()


def test_secret_is_stored_in_its_own_file_and_not_printed(program: Program) -> None:
    stored = pipe(program, "sk-hidden\n", "config", "set", "OPENAI_API_KEY", "-")
    assert stored.code == 0
    assert "hidden" not in stored.out + stored.err
    secrets = folder(program) / ".env"
    assert secrets.read_text() == "OPENAI_API_KEY=sk-hidden\n"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert program.run("config", "unset", "OPENAI_API_KEY").code == 0
    assert secrets.read_text() == ""


def test_any_secret_can_be_stored_and_an_unused_one_gets_a_hint(program: Program) -> None:
    misspelt = program.run("config", "set", "OPENAI_APIKEY", "x")
    assert (misspelt.code, misspelt.err) == (0, "No setting uses it yet. Did you mean `OPENAI_API_KEY`?\n")
    unused = program.run("config", "set", "MINE_API_KEY", "x")
    assert unused.err == "No setting uses it yet. `talaria config set providers.NAME.key MINE_API_KEY` does.\n"
    program.run("config", "set", "providers.mine.key", "MINE_API_KEY")
    assert program.run("config", "set", "MINE_API_KEY", "y").err == ""
    assert program.run("config", "get", "MINE_API_KEY").out == "****\n"
    assert program.run("config", "set", "TALARIA__LOG__LEVEL", "x").code == 1


def test_option_of_a_chat_network_is_set_shown_and_removed(program: Program) -> None:
    key = "platforms.telegram.options.base_url"
    assert program.run("config", "set", key, "http://127.0.0.1:8081").code == 0
    assert "[platforms.telegram.options]\nbase_url = " in (folder(program) / "config.toml").read_text()
    assert program.run("config", "get", key).out == "http://127.0.0.1:8081\n"
    assert program.run("config", "unset", key).code == 0
    assert program.run("config", "get", key).code == 1


def test_effect_of_a_change_is_shown_only_while_a_gateway_runs(program: Program) -> None:
    logs = folder(program) / "logs"
    logs.mkdir(parents=True)
    with running_mark(logs, start_report("1.0")):
        later = program.run("config", "set", "store.readers", "4").err
        assert later == "Run `talaria gateway restart` to use it there.\n"
        assert program.run("config", "set", "log.level", "debug").err == "The running gateway picks this up now.\n"
    assert program.run("config", "set", "log.level", "info").err == ""


def test_origin_on_a_terminal_is_file_name_and_line(program: Program) -> None:
    write_config(program, "# mine\n[store]\nreaders = 4\n")
    assert re.search(r"store.readers +4 +config.toml:3\n", program.run_on_terminal("config", "show", "--changed").out)


def test_unset_restores_the_default(program: Program) -> None:
    file = write_config(program, "# mine\n[store]\nreaders = 4\n")
    assert program.run("config", "unset", "store.readers").out == f"Removed store.readers from {file}.\n"
    assert program.run("config", "get", "store.readers").out == "2\n"
    assert file.read_text().startswith("# mine\n")
    assert program.run("config", "unset", "store.readers").code == 1


def test_check_lists_faults_of_settings_secrets_and_environment(program: Program) -> None:
    assert program.run("config", "check") == Outcome(0, "No problems found.\n")
    write_config(program, "[store]\nreaders = 0\nx = 1\n")
    (folder(program) / ".env").write_text("nonsense\n")
    (folder(program) / ".env").chmod(0o644)
    env = {"TALARIA__NO__SUCH": "1"}
    checked = program.run("config", "check", env=env)
    assert checked.code == 1
    assert len(checked.out.splitlines()) == 5
    faults = json.loads(program.run("config", "check", "--json", env=env).out)
    assert [fault["sentence"] for fault in faults] == checked.out.splitlines()
    assert (faults[1]["key"], faults[1]["line"]) == ("store.readers", 2)


def test_edit_starts_with_a_template_that_explains_every_key(program: Program) -> None:
    edited = program.run("config", "edit", env=editor(program, 'grep -c "^# readers = 2" "$1"'))
    assert edited == Outcome(0, "1\nNo problems found.\n")
    assert (folder(program) / "config.toml").stat().st_mode & 0o777 == 0o600


def test_edit_checks_the_edited_file(program: Program) -> None:
    edited = program.run("config", "edit", env=editor(program, 'echo "[stor]" > "$1"'))
    assert edited.code == 1
    assert "line 1: `stor` is not a known section; the nearest is `store`." in edited.out


def test_edit_offers_to_edit_faulty_settings_again(program: Program) -> None:
    script = 'if [ -f "$0.once" ]; then echo "[store]" > "$1"; else touch "$0.once"; echo "[stor]" > "$1"; fi'
    edited = program.run_on_terminal("config", "edit", typed="y\n", env=editor(program, script))
    assert edited.code == 0
    assert "Edit again?" in edited.out
    assert edited.out.splitlines()[-1].endswith("No problems found.\x1b[0m")


@pytest.mark.parametrize(("name", "sentence"), [("/no/such", "No such file"), ("false", "exited with code 1")])
def test_failing_editor_is_reported(program: Program, name: str, sentence: str) -> None:
    refused = program.run("config", "edit", env={"VISUAL": name})
    assert refused.code == 1
    assert sentence in refused.err
