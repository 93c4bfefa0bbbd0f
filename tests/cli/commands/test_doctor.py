import asyncio
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.app.program import Outcome, Program
from tests.app.program_with_model import scripted_program, talk
from tests.app.setup.network_servers import TOKEN, networks
from tests.cli.commands.test_setup import ELSEWHERE
from tests.cli.stored_sessions import converse, read, said
from tests.house.tree import ROOT
from tests.tools.web.engine_servers import KEY as ENGINE_KEY
from tests.tools.web.engine_servers import SearchServers, search_servers

from talaria.cli.commands.doctor.machine_checks import FIRST_PYTHON, FIRST_SQLITE, LAST_PYTHON
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.settings.environment import process_environment
from talaria.testing.model_server import Answer, ModelServer, Say, bad_key, model_unknown, no_credit, overloaded
from talaria.tools.sandbox.bubblewrap import sandbox_available

KEY = {"OPENAI_API_KEY": "sk-hidden-and-long-enough"}


@pytest.fixture
def program(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program on a machine with ripgrep, of which the doctor only looks whether it is there."""
    tools = tmp_path_factory.mktemp("tools")
    (tools / "rg").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{process_environment()['PATH']}")
    return Program(tmp_path)


def folder(program: Program) -> Path:
    path = program.home / "profiles" / "default"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def found(outcome: Outcome, check: str) -> list[tuple[str, str]]:
    """Return state and sentence of each line about one thing."""
    lines = [line.split(maxsplit=2) for line in outcome.out.splitlines() if not line.startswith((" ", "→"))]
    return [(words[0], words[2]) for words in lines if words[1:2] == [check] and len(words) == 3]


def by_check(outcome: Outcome) -> dict[str, Any]:
    return {result["check"]: result for result in json.loads(outcome.out)}


def test_a_healthy_profile_is_well(program: Program) -> None:
    converse(program, NewSession(source="cli"), said("Hi"))
    seen = program.run("doctor", "--offline", env=KEY)
    assert (seen.code, seen.err) == (0, "")
    assert seen.out.endswith("\nNo problems in the profile default.\n")
    assert found(seen, "files") == [("ok", f"{folder(program)} is private.")]
    assert found(seen, "store") == [("ok", f"{folder(program)}/talaria.db opens, is up to date and undamaged.")]
    assert found(seen, "keys") == [("ok", "OPENAI_API_KEY ****ough, from environment variable OPENAI_API_KEY.")]
    assert found(seen, "python")[0][0] == found(seen, "sqlite")[0][0] == found(seen, "terminal")[0][0] == "ok"


def test_an_untouched_home_has_warnings_only_and_stays_untouched(program: Program) -> None:
    seen = program.run("doctor", "--offline")
    assert (seen.code, seen.err) == (0, "")
    assert found(seen, "files") == [("warning", f"{program.home}/profiles/default doesn't exist yet.")]
    assert found(seen, "store")[0][0] == "ok"
    assert "2 warnings in the profile default. `talaria doctor --fix` fixes 1 of them." in seen.out
    assert list(program.home.iterdir()) == []


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


def test_a_token_whose_package_is_missing_is_a_warning(program: Program, tmp_path: Path) -> None:
    # As it is where somebody has installed Talaria without its extras: they need what is not there.
    described = tmp_path / "packages" / "talaria_agent-0.1.0.dist-info"
    described.mkdir(parents=True)
    extras = [f'Provides-Extra: {one}\nRequires-Dist: no-such-{one}; extra == "{one}"' for one in ("discord", "slack")]
    (described / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1\nName: talaria-agent\nVersion: 0.1.0", *extras])
    )
    env = {"DISCORD_BOT_TOKEN": "abc", "PYTHONPATH": str(described.parent)}
    seen = program.run("doctor", "--offline", env=env)
    told = found(seen, "extras")
    assert ("warning", "DISCORD_BOT_TOKEN is set, but no-such-discord isn't installed.") in told
    others = next(sentence for _, sentence in told if sentence.startswith("Not installed"))
    assert re.search(r"slack\. Install one with `\S+ .*install .*\[slack\]'?`\.", others)


def test_browser_is_reported_as_it_is_set(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline"), "browser")
    assert (state, sentence[:4]) == ("ok", "Off.")
    on = {"TALARIA__TOOLS__TOOLSETS": '["browser"]'}
    browser = write_private(folder(program) / "chromium", "#!/bin/sh\n")
    browser.chmod(0o700)
    for path, expected in ((str(browser), "ok"), ("/missing/chrome", "warning")):
        env = {**on, "TALARIA__BROWSER__EXECUTABLE_PATH": path}
        ((state, sentence),) = found(program.run("doctor", "--offline", env=env), "browser")
        assert state == expected
        assert path in sentence


def test_installed_extras_are_reported_with_their_versions(program: Program) -> None:
    assert any(
        sentence.startswith("postgres: psycopg 3.")
        for _, sentence in found(program.run("doctor", "--offline"), "extras")
    )


def test_a_server_that_cannot_be_reached_is_a_fault_without_its_password(program: Program) -> None:
    url = {"TALARIA__STORE__URL": "postgresql://me:hidden@127.0.0.1:1/db", "TALARIA__STORE__BUSY_TIMEOUT_SECONDS": "1"}
    seen = program.run("doctor", "--offline", env=url)
    assert (seen.code, seen.err) == (1, "")
    assert found(seen, "store")[0][0] == "fault"
    assert "hidden" not in seen.out


def test_too_little_free_disk_is_a_warning(program: Program) -> None:
    seen = program.run("doctor", "--offline", env={"TALARIA__DOCTOR__MIN_FREE_MEGABYTES": "999999999"})
    assert seen.code == 0
    assert found(seen, "disk")[0][0] == "warning"
    assert "`doctor.min_free_megabytes` is 999999999" in seen.out


def test_an_output_that_cannot_show_every_script_is_a_warning(program: Program) -> None:
    seen = program.run("doctor", "--offline", env={"PYTHONIOENCODING": "latin-1"})
    assert found(seen, "terminal")[0][0] == "warning"
    assert "LC_ALL=C.UTF-8" in seen.out


def test_offline_the_model_is_named_with_the_reason_and_not_asked(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline", env=KEY), "model")
    assert state == "ok"
    assert re.fullmatch(r"openai:\S+ is configured \(not contacted\)\. Chosen because OPENAI_API_KEY is .*", sentence)
    own = {"TALARIA__MODEL__PROVIDER": "mine", "TALARIA__PROVIDERS__MINE__BASE_URL": "https://model.invalid/v1"}
    assert found(program.run("doctor", "--offline", env=own), "model") == [
        ("ok", "`model.name` isn't set, so the first model of mine is used.")
    ]


async def test_own_model_that_answers_is_well_without_a_key(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say("Hello\nto you."))
    seen = await talk(scripted_program(tmp_path, server), "doctor")
    expected = "mine:scripted answers “Hello to you”. Chosen by the setting `model.provider`."
    assert found(seen, "model")[0] == ("ok", expected)
    assert found(seen, "keys") == [("ok", "No keys or tokens are set.")]
    assert len(server.received) == 1


async def test_model_is_asked_although_its_provider_lists_it(tmp_path: Path) -> None:
    async with ModelServer(models=["gpt-6.1-terra"]) as server:
        settings = f'[providers.openai]\nbase_url = "{server.url}/v1"\n'
        program = scripted_program(tmp_path, server, settings, "OPENAI_API_KEY=sk-hidden-and-long-enough\n")
        program.run("config", "set", "model.provider", "openai")
        program.run("config", "set", "model.name", "gpt-6.1-terra")
        server.otherwise(no_credit())
        seen = await talk(program, "doctor")
    assert found(seen, "model")[0][0] == "fault"
    assert "is out of credit (HTTP 429)" in found(seen, "model")[0][1]
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("answer", "code", "state", "sentence"),
    [
        (bad_key(), 1, "fault", "mine at {url} requires an API key (HTTP 401)"),
        (model_unknown(), 1, "fault", "mine at {url} has no model named `scripted`"),
        (overloaded(), 0, "warning", "mine at {url} is having problems (HTTP 503)"),
    ],
    ids=["key", "model", "overloaded"],
)
async def test_model_that_refuses_is_reported_with_its_address(
    tmp_path: Path, server: ModelServer, answer: Answer, code: int, state: str, sentence: str
) -> None:
    server.otherwise(answer)
    seen = await talk(scripted_program(tmp_path, server), "doctor")
    expected = f"mine:scripted isn't answering. {sentence.format(url=f'{server.url}/v1')}"
    assert (seen.code, seen.err) == (code, "")
    assert found(seen, "model")[0][0] == state
    assert found(seen, "model")[0][1].startswith(expected)


def test_model_behind_a_closed_port_is_a_fault(program: Program) -> None:
    own = {"TALARIA__MODEL__PROVIDER": "mine", "TALARIA__PROVIDERS__MINE__BASE_URL": "http://127.0.0.1:9/v1"}
    sentence = "I can't reach mine at http://127.0.0.1:9/v1: the connection was refused."
    for named, expected in (("clever", f"mine:clever isn't answering. {sentence}"), ("", sentence)):
        seen = program.run("doctor", env={**own, "TALARIA__MODEL__NAME": named})
        state, reported = found(seen, "model")[0]
        assert (seen.code, seen.err, state) == (1, "", "fault")
        assert reported.startswith(expected)


@pytest.mark.parametrize("provider", ["anthropic", "nowhere"])
def test_a_model_that_cannot_answer_is_a_warning_that_says_what_to_do(program: Program, provider: str) -> None:
    seen = program.run("doctor", "--offline", env={"TALARIA__MODEL__PROVIDER": provider})
    ((state, sentence),) = found(seen, "model")
    assert (seen.code, seen.err, state) == (0, "", "warning")
    assert provider.upper() in sentence.upper()


def test_tools_are_counted_and_names_that_mean_none_are_warned_about(program: Program) -> None:
    settings = '[tools]\ntoolsets = ["files", "web"]\ndisabled = ["web_serch", "mcp_x_y"]\n[mcp.half]\nenabled = true\n'
    write_private(folder(program) / "config.toml", settings)
    seen = program.run("doctor", "--offline")
    told = found(seen, "tools")
    assert [state for state, _ in told] == ["ok", "warning", "warning"]
    assert told[0][1].startswith("7 of ")
    assert told[1][1] == "`tools.disabled` names `web_serch`, which isn't a tool."
    assert "The nearest is `web_search`." in seen.out
    assert told[2][1] == "The MCP server half needs a command or an address, but not both."


def test_helpers_that_are_missing_come_with_the_way_to_get_them(program: Program, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path / "no-programs"), "TALARIA__SANDBOX__ENABLED": "true"}
    seen = program.run("doctor", "--offline", env=bare)
    assert seen.code == 0
    assert ("warning", "ripgrep (rg) isn't installed, so searching many files is slow.") in found(seen, "tools")
    ((state, sentence),) = found(seen, "sandbox")
    assert (state, "bubblewrap (bwrap) is not installed." in sentence) == ("warning", True)
    assert "sudo apt install bubblewrap" in seen.out


def test_missing_programs_for_speech_are_reported(program: Program) -> None:
    write_private(
        folder(program) / "config.toml",
        '[voice]\ntranscribe = "command"\ncommand = "no-such-program {file}"\n'
        'speaker = "command"\nspeak_command = "sh -c true {file}"\n',
    )
    seen = program.run("doctor", "--offline").out
    assert "`no-such-program` of `voice.command` isn't installed" in " ".join(seen.split())
    assert "voice.speak_command" not in seen


def test_auto_without_bubblewrap_is_reported(program: Program, tmp_path: Path) -> None:
    seen = program.run("doctor", "--offline", env={"PATH": str(tmp_path / "no-programs")})
    ((state, sentence),) = found(seen, "sandbox")
    assert (
        state,
        "are refused, because their sandbox isn't available. bubblewrap (bwrap) is not installed." in sentence,
    ) == ("warning", True)
    assert seen.code == 0


def test_a_sandbox_is_reported_as_it_is_set(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline"), "sandbox")
    works = sandbox_available() is None
    expected = ("ok", "run in a bubblewrap sandbox") if works else ("warning", "are refused")
    assert (state, expected[1] in sentence) == (expected[0], True)
    ((state, sentence),) = found(
        program.run("doctor", "--offline", env={"TALARIA__SANDBOX__ENABLED": "false"}), "sandbox"
    )
    assert (state, sentence[:3]) == ("ok", "Off")
    ((state, sentence),) = found(
        program.run("doctor", "--offline", env={"TALARIA__SANDBOX__ENABLED": "true"}), "sandbox"
    )
    assert (state, "run in a bubblewrap sandbox" in sentence) == (("ok", True) if works else ("warning", False))


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
    mended = by_check(program.run("doctor", "--offline", "--fix", "--json"))
    assert mended["files"]["state"] == "ok"
    assert mended["files"]["repaired"] == [f"Set {folder(program)} to mode 0700."]


def test_the_report_is_coloured_and_fits_a_terminal(program: Program) -> None:
    folder(program).chmod(0o755)
    seen = program.run_on_terminal("doctor", "--offline", env={"COLUMNS": "100"})
    assert seen.code == 0
    assert "\x1b[33mwarning " in seen.out
    assert "\x1b[32mok " in seen.out
    sentences = program.run_on_terminal(
        "doctor", "--offline", "--color", "never", env={"COLUMNS": "100"}
    ).out.splitlines()
    assert all(len(line) <= 100 or program.home.name in line for line in sentences)


def test_what_is_supported_agrees_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    after = (LAST_PYTHON[0], LAST_PYTHON[1] + 1)
    assert project["requires-python"] == ">={}.{},<{}.{}".format(*FIRST_PYTHON, *after)
    assert f"apsw>={'.'.join(map(str, FIRST_SQLITE))}" in project["dependencies"]


def test_an_api_without_keys_is_reported(program: Program) -> None:
    program.run("config", "set", "api.keyless", "true")
    reported = [sentence for state, sentence in found(program.run("doctor"), "access") if state == "warning"]
    assert any("without a key: `api.keyless` is on" in sentence for sentence in reported)


def engine_settings(servers: SearchServers, *engines: str) -> str:
    addresses = "\n".join(f'{name} = "{servers.base}/{name}"' for name in engines)
    return f"[web.addresses]\n{addresses}\n"


async def test_configured_search_engines_are_asked(program: Program) -> None:
    async with search_servers() as servers:
        settings = engine_settings(servers, "brave", "tavily", "exa", "searxng")
        write_private(folder(program) / "config.toml", settings)
        servers.override["exa"] = lambda: web.Response(status=429)
        keys = {"BRAVE_SEARCH_API_KEY": ENGINE_KEY, "TAVILY_API_KEY": "wrong-0123456789", "EXA_API_KEY": ENGINE_KEY}
        seen = await asyncio.to_thread(program.run, "doctor", env={**keys, "GOOGLE_CSE_API_KEY": "g-0123456789"})
    assert found(seen, "search") == [
        ("warning", "Google isn't used: no search engine id (set web.google_engine_id)."),
        ("ok", "Brave answers."),
        ("warning", "Tavily can't be used: it rejected TAVILY_API_KEY (HTTP 401)."),
        ("warning", "Exa can't be used: rate-limited."),
        ("ok", "SearXNG answers."),
    ]
    assert sorted(servers.asked) == ["brave", "exa", "searxng", "tavily"]
    assert "0123456789" not in seen.out


def test_search_engines_are_not_contacted_offline(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline"), "search")
    assert (state, sentence.startswith("Web searches use DuckDuckGo")) == ("ok", True)
    dead = {"KAGI_API_KEY": "k", "TALARIA__WEB__ENGINES": "kagi,brave"}
    assert found(program.run("doctor", "--offline", env=dead), "search") == [
        ("warning", "Brave isn't used: no key (set BRAVE_API_KEY)."),
        ("ok", "Web searches use Kagi (not contacted)."),
    ]


async def test_credentials_of_chat_networks_are_tested_with_them(program: Program) -> None:
    async with networks() as base:
        telegram = f'[platforms.telegram.options]\nbase_url = "{base}/bot"\n'
        write_private(folder(program) / "config.toml", f"{telegram}[platforms.webhook]\nenabled = true\n")
        write_private(folder(program) / ".env", f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        right = await asyncio.to_thread(program.run, "doctor", env=ELSEWHERE)
        write_private(folder(program) / ".env", "TELEGRAM_BOT_TOKEN=1:wrong\n")
        wrong = await asyncio.to_thread(program.run, "doctor", env=ELSEWHERE)
    offline = await asyncio.to_thread(program.run, "doctor", "--offline")
    assert found(right, "networks") == [
        ("ok", "Telegram accepted the token: @winged_bot."),
        ("ok", "Webhooks is set up."),
    ]
    assert found(wrong, "networks")[0] == (
        "fault",
        "Telegram rejected this token. Send /token to BotFather to see it again.",
    )
    assert found(offline, "networks")[0] == ("ok", "Telegram is set up (not contacted).")
