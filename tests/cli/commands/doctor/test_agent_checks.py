"""Checks of the agent: model, tools, search engines, sandbox, browser and chat networks."""

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import web
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk
from tests.app.setup.network_servers import TOKEN, networks
from tests.cli.commands.doctor.doctor_report import KEY, folder, found, write_private
from tests.cli.commands.test_setup import ELSEWHERE
from tests.tools.web.engine_servers import KEY as ENGINE_KEY
from tests.tools.web.engine_servers import SearchServers, search_servers

from talaria.testing.model_server import Answer, ModelServer, Say, bad_key, model_unknown, no_credit, overloaded
from talaria.tools.sandbox.bubblewrap import find_sandbox_problem

# A model that refuses at once; the embedded one would be loaded and asked.
CLOSED_PORT = {"TALARIA__MODEL__PROVIDER": "mine", "TALARIA__PROVIDERS__MINE__BASE_URL": "http://127.0.0.1:9/v1"}


def test_offline_check_names_the_model_and_reason_without_calling_it(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline", env=KEY), "model")
    assert state == "ok"
    assert re.fullmatch(r"openai:\S+ is configured \(not contacted\)\. Chosen because OPENAI_API_KEY is .*", sentence)
    own = {"TALARIA__MODEL__PROVIDER": "mine", "TALARIA__PROVIDERS__MINE__BASE_URL": "https://model.invalid/v1"}
    assert found(program.run("doctor", "--offline", env=own), "model") == [
        ("ok", "`model.name` isn't set, so the first model of mine is used.")
    ]


async def test_own_model_that_answers_is_ok_without_a_key(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say("Hello\nto you."))
    seen = await talk(scripted_program(tmp_path, server), "doctor")
    expected = "mine:scripted answers “Hello to you”. Chosen by the setting `model.provider`."
    assert found(seen, "model")[0] == ("ok", expected)
    assert found(seen, "keys") == [("ok", "No keys or tokens are set.")]
    assert len(server.received) == 1


async def test_model_is_called_even_if_its_provider_lists_it(tmp_path: Path) -> None:
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
    sentence = "I can't reach mine at http://127.0.0.1:9/v1: the connection was refused."
    for named, expected in (("clever", f"mine:clever isn't answering. {sentence}"), ("", sentence)):
        seen = program.run("doctor", env={**CLOSED_PORT, "TALARIA__MODEL__NAME": named})
        state, reported = found(seen, "model")[0]
        assert (seen.code, seen.err, state) == (1, "", "fault")
        assert reported.startswith(expected)


@pytest.mark.parametrize("provider", ["anthropic", "nowhere"])
def test_unusable_model_is_a_warning_with_advice(program: Program, provider: str) -> None:
    seen = program.run("doctor", "--offline", env={"TALARIA__MODEL__PROVIDER": provider})
    ((state, sentence),) = found(seen, "model")
    assert (seen.code, seen.err, state) == (0, "", "warning")
    assert provider.upper() in sentence.upper()


def test_tools_are_counted_and_unknown_names_are_warnings(program: Program) -> None:
    settings = '[tools]\ntoolsets = ["files", "web"]\ndisabled = ["web_serch", "mcp_x_y"]\n[mcp.half]\nenabled = true\n'
    write_private(folder(program) / "config.toml", settings)
    seen = program.run("doctor", "--offline")
    findings = found(seen, "tools")
    assert [state for state, _ in findings] == ["ok", "warning", "warning"]
    assert findings[0][1].startswith("7 of ")
    assert findings[1][1] == "`tools.disabled` names `web_serch`, which isn't a tool."
    assert "The nearest is `web_search`." in seen.out
    assert findings[2][1] == "The MCP server half needs a command or an address, but not both."


def test_missing_helper_programs_are_reported_with_install_commands(program: Program, tmp_path: Path) -> None:
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


def test_sandbox_check_reports_its_setting(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline"), "sandbox")
    works = find_sandbox_problem() is None
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


def test_browser_check_reports_its_setting(program: Program) -> None:
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


def test_token_without_its_package_is_a_warning(program: Program, tmp_path: Path) -> None:
    # As after an installation without extras: the packages that they require are missing.
    described = tmp_path / "packages" / "talaria_agent-0.1.0.dist-info"
    described.mkdir(parents=True)
    extras = [f'Provides-Extra: {one}\nRequires-Dist: no-such-{one}; extra == "{one}"' for one in ("discord", "slack")]
    (described / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1\nName: talaria-agent\nVersion: 0.1.0", *extras])
    )
    env = {"DISCORD_BOT_TOKEN": "abc", "PYTHONPATH": str(described.parent)}
    seen = program.run("doctor", "--offline", env=env)
    findings = found(seen, "extras")
    assert ("warning", "DISCORD_BOT_TOKEN is set, but no-such-discord isn't installed.") in findings
    others = next(sentence for _, sentence in findings if sentence.startswith("Not installed"))
    assert re.search(r"slack\. Install one with `\S+ .*install .*\[slack\]'?`\.", others)


def engine_settings(servers: SearchServers, *engines: str) -> str:
    addresses = "\n".join(f'{name} = "{servers.base}/{name}"' for name in engines)
    return f"[web.addresses]\n{addresses}\n"


async def test_configured_search_engines_are_contacted(program: Program) -> None:
    async with search_servers() as servers:
        settings = engine_settings(servers, "brave", "tavily", "exa", "searxng")
        write_private(folder(program) / "config.toml", settings)
        servers.override["exa"] = lambda: web.Response(status=429)
        keys = {"BRAVE_SEARCH_API_KEY": ENGINE_KEY, "TAVILY_API_KEY": "wrong-0123456789", "EXA_API_KEY": ENGINE_KEY}
        keys["GOOGLE_CSE_API_KEY"] = "g-0123456789"
        seen = await asyncio.to_thread(program.run, "doctor", env={**keys, **CLOSED_PORT})
    assert found(seen, "search") == [
        ("warning", "Google isn't used: no search engine id (set web.google_engine_id)."),
        ("ok", "Brave answers."),
        ("warning", "Tavily can't be used: it rejected TAVILY_API_KEY (HTTP 401)."),
        ("warning", "Exa can't be used: rate-limited."),
        ("ok", "SearXNG answers."),
    ]
    assert sorted(servers.called) == ["brave", "exa", "searxng", "tavily"]
    assert "0123456789" not in seen.out


def test_search_engines_are_not_contacted_offline(program: Program) -> None:
    ((state, sentence),) = found(program.run("doctor", "--offline"), "search")
    assert (state, sentence.startswith("Web searches use DuckDuckGo")) == ("ok", True)
    dead = {"KAGI_API_KEY": "k", "TALARIA__WEB__ENGINES": "kagi,brave"}
    assert found(program.run("doctor", "--offline", env=dead), "search") == [
        ("warning", "Brave isn't used: no key (set BRAVE_API_KEY)."),
        ("ok", "Web searches use Kagi (not contacted)."),
    ]


async def test_credentials_of_chat_networks_are_checked(program: Program) -> None:
    async with networks() as base:
        telegram = f'[platforms.telegram.options]\nbase_url = "{base}/bot"\n'
        write_private(folder(program) / "config.toml", f"{telegram}[platforms.webhook]\nenabled = true\n")
        write_private(folder(program) / ".env", f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        right = await asyncio.to_thread(program.run, "doctor", env=ELSEWHERE | CLOSED_PORT)
        write_private(folder(program) / ".env", "TELEGRAM_BOT_TOKEN=1:wrong\n")
        wrong = await asyncio.to_thread(program.run, "doctor", env=ELSEWHERE | CLOSED_PORT)
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
