"""`talaria setup --non-interactive`: all settings are written, or none."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import Outcome, Program
from tests.app.setup.network_servers import TOKEN, networks
from tests.cli.commands.test_setup import DEAD, ELSEWHERE, KEY, read_profile_file
from tests.tools.web.engine_servers import KEY as ENGINE_KEY
from tests.tools.web.engine_servers import search_servers

from talaria.testing.model_server import ModelServer

SCRIPT = ("setup", "--non-interactive")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(keys=[KEY], models=["gpt-5", "gpt-6.1-terra"]) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def env(server: ModelServer) -> dict[str, str]:
    return {**ELSEWHERE, "TALARIA__PROVIDERS__OPENAI__BASE_URL": f"{server.url}/v1", "MY_KEY": KEY}


async def run(program: Program, env: dict[str, str], *arguments: str, typed: str = "") -> Outcome:
    """Run the setup in parallel with its server."""
    environment = program.environment(**env)
    return Outcome(
        *await asyncio.to_thread(
            warm_program.run, [*SCRIPT, *arguments], env=environment, cwd=program.home, typed=typed.encode()
        )
    )


def nothing_written(program: Program) -> bool:
    return not (program.home / "profiles").exists()


@pytest.mark.parametrize("source", ["MY_KEY", "key.txt", "-"])
async def test_key_is_read_from_a_variable_a_file_or_stdin(program: Program, env: dict[str, str], source: str) -> None:
    (program.home / "key.txt").write_text(f"{KEY}\n")
    done = await run(program, env, "--provider", "openai", "--key-from", source, typed=f"{KEY}\n")
    assert (done.code, done.err) == (0, "")
    assert KEY not in done.out
    assert "openai: OpenAI is reachable and offers 2 models." in done.out
    assert "OPENAI_API_KEY = ****6789" in done.out
    assert read_profile_file(program, ".env") == f"OPENAI_API_KEY={KEY}\n"
    assert read_profile_file(program, "config.toml") == '[model]\nprovider = "openai"\n'


async def test_key_given_as_an_argument_is_refused_and_not_printed(program: Program, env: dict[str, str]) -> None:
    done = await run(program, env, "--provider", "openai", "--key-from", KEY)
    assert (done.code, done.out) == (1, "")
    assert "--key-from names neither an environment variable that is set nor a readable file" in done.err
    assert KEY not in done.err
    assert nothing_written(program)


async def test_json_report_has_checks_and_written_settings(program: Program, env: dict[str, str]) -> None:
    arguments = ("--provider", "openai", "--model", "gpt-5", "--key-from", "MY_KEY", "--toolsets", "files,web")
    done = await run(program, env, *arguments, "--approval", "off", "--sandbox", "on", "--json")
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (0, True)
    assert report["checks"] == [
        {"what": "openai", "outcome": "right", "sentence": "OpenAI is reachable and offers 2 models."}
    ]
    assert {one["key"]: one["value"] for one in report["written"]} == {
        "OPENAI_API_KEY": "****6789",
        "model.provider": "openai",
        "model.name": "gpt-5",
        "tools.toolsets": "files, web",
        "sandbox.enabled": "true",
        "approval.mode": "off",
    }


@pytest.mark.parametrize(
    ("arguments", "outcome", "sentence"),
    [
        (("--provider", "openai", "--key-from", "WRONG"), "refused", "rejected this key"),
        (("--provider", "groq", "--key-from", "MY_KEY"), "unreachable", "Can't reach"),
        (("--provider", "ollama"), "unreachable", "Start Ollama first"),
        (
            ("--provider", "anthropic"),
            "odd",
            "needs the key ANTHROPIC_API_KEY",
        ),
        (("--provider", "openai", "--key-from", "MY_KEY", "--model", "gpt-55"), "odd", "the nearest is `gpt-5`"),
        (("--provider", "box", "--base-url", DEAD), "unreachable", "Check the network and the address"),
    ],
)
async def test_failed_check_prevents_all_writes(
    program: Program, env: dict[str, str], arguments: tuple[str, ...], outcome: str, sentence: str
) -> None:
    env["WRONG"] = "sk-wrong"
    done = await run(program, env, *arguments, "--toolsets", "files", "--json")
    report = json.loads(done.out)
    assert (done.code, report["ok"], report["written"]) == (1, False, [])
    assert report["checks"][0]["outcome"] == outcome
    assert sentence in report["checks"][0]["sentence"]
    assert nothing_written(program)
    plain = await run(program, env, *arguments)
    assert "Nothing was saved; --no-check saves without checking." in plain.err


async def test_no_check_option_saves_without_checking(program: Program, env: dict[str, str]) -> None:
    done = await run(program, env, "--provider", "groq", "--key-from", "MY_KEY", "--no-check")
    assert (done.code, done.err) == (0, "")
    assert read_profile_file(program, ".env") == f"GROQ_API_KEY={KEY}\n"


async def test_own_server_with_a_key_is_saved(program: Program, env: dict[str, str], server: ModelServer) -> None:
    arguments = ("--provider", "my-box", "--base-url", f"{server.url}/v1", "--key-from", "MY_KEY", "--model", "gpt-5")
    assert (await run(program, env, *arguments)).code == 0
    assert read_profile_file(program, ".env") == f"MY_BOX_API_KEY={KEY}\n"
    shown = await asyncio.to_thread(program.run, "model", "--json", env=env)
    assert (json.loads(shown.out)["provider"], json.loads(shown.out)["model"]) == ("my-box", "gpt-5")
    again = await run(program, env, "--model", "gpt-6.1-terra")
    assert again.code == 0
    assert 'name = "gpt-6.1-terra"' in read_profile_file(program, "config.toml")


async def test_tokens_of_chat_networks_are_checked_and_saved(program: Program, env: dict[str, str]) -> None:
    env["TOKEN"] = TOKEN
    async with networks() as base:
        urls = [word for name in ("telegram", "discord", "slack") for word in ("--network-url", f"{name}={base}")]
        names = ("TELEGRAM_BOT", "DISCORD_BOT", "SLACK_BOT", "SLACK_APP", "MATRIX_ACCESS")
        arguments = [word for name in names for word in ("--chat", f"{name}_TOKEN=TOKEN")]
        done = await run(program, env, *urls, *arguments, "--chat", f"MATRIX_HOMESERVER={base}", "--json")
        report = json.loads(done.out)
        assert done.code == 0
        assert [check["outcome"] for check in report["checks"]] == ["right"] * 5
        assert TOKEN not in done.out
        assert read_profile_file(program, ".env").count(TOKEN) == 5
        refused = await run(program, env, *urls, "--chat", "TELEGRAM_BOT_TOKEN=MY_KEY", "--toolsets", "files")
    assert refused.code == 1
    assert "TELEGRAM_BOT_TOKEN: Telegram rejected this token." in refused.out
    assert "files" not in read_profile_file(program, "config.toml")


async def test_a_token_that_needs_a_server_is_not_saved_without_one(program: Program, env: dict[str, str]) -> None:
    refused = await run(program, env, "--chat", "MATRIX_ACCESS_TOKEN=MY_KEY")
    assert refused.code == 1
    assert "MATRIX_ACCESS_TOKEN: A Matrix token belongs to a server, and no server is set." in refused.out
    assert nothing_written(program)


async def test_network_without_required_secrets_is_enabled_in_the_settings(
    program: Program, env: dict[str, str]
) -> None:
    assert (await run(program, env, "--chat", "webhook.port=8646", "--chat", "WEBHOOK_SECRET=MY_KEY")).code == 0
    assert read_profile_file(program, ".env") == f"WEBHOOK_SECRET={KEY}\n"
    assert (
        read_profile_file(program, "config.toml")
        == '[platforms.webhook]\nenabled = true\n\n[platforms.webhook.options]\nport = "8646"\n'
    )
    listed = await asyncio.to_thread(program.run, "setup", "--list-networks", "--json", env=env)
    ready = [one["network"] for one in json.loads(listed.out) if one["set_up"]]
    assert ready == ["webhook"]
    plain = await asyncio.to_thread(program.run, "setup", "--list-networks", env=env)
    assert "webhook: Webhooks, set up\n  webhook.port: " in plain.out
    assert "  WEBHOOK_SECRET (secret, optional): " in plain.out
    assert "  TEAMS_APP_ID: " in plain.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--toolsets", "files,magic"), "`tools.toolsets` must be a list of some of"),
        (("--provider", "opnai"), "`opnai` isn't a known provider; the nearest is `openai`."),
        (("--key-from", "MY_KEY"), "add --provider NAME"),
        (("--model", "gpt-5"), "--model needs a provider"),
        ((), "Nothing to set up"),
        (("--chat", "TELEGRAM_BOT_TOKEN=-", "--chat", "SLACK_BOT_TOKEN=-", "--no-check"), "Only one key or token"),
        (("--provider", "openai", "--key-from", "EMPTY"), "The value that --key-from refers to is empty."),
        (("--network-url", "telegram", "--toolsets", "files"), "--network-url must be NETWORK=URL"),
        (("--chat", "MATRIX_HOMESERVER=nowhere", "--toolsets", "files"), "start with http:// or https://"),
        (("--chat", "TELEGRAM_TOKEN=MY_KEY"), "the nearest is `TELEGRAM_BOT_TOKEN`. `talaria setup --list-networks`"),
        (("--chat", "TELEGRAM_BOT_TOKEN"), "--chat must be NAME=SOURCE"),
        (("--chat", "webhook.port=0"), "webhook.port: A port is a number"),
        (("--provider", "My Box", "--base-url", DEAD, "--key-from", "MY_KEY"), "can't be the name of a provider"),
        (("--provider", "box", "--base-url", "nowhere", "--no-check"), "starts with https:// or http://"),
    ],
)
async def test_invalid_options_are_refused_with_a_reason(
    program: Program, env: dict[str, str], arguments: tuple[str, ...], sentence: str
) -> None:
    refused = await run(program, {**env, "EMPTY": " "}, *arguments, typed=TOKEN)
    assert (refused.code, refused.out) == (1, "")
    assert sentence in refused.err
    assert nothing_written(program)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "there is no terminal to answer them; use --non-interactive with options instead."),
        (("model",), "there is no terminal"),
        (("--provider", "openai"), "--provider needs --non-interactive."),
        (("--json",), "--json needs --non-interactive."),
        (("chat", "--non-interactive"), "sections are for interactive setup"),
    ],
)
def test_usage_errors_exit_with_code_2(program: Program, arguments: tuple[str, ...], sentence: str) -> None:
    refused = program.run("setup", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert sentence in refused.err
    assert refused.err.endswith("See `talaria help setup`.\n")


def test_the_embedded_model_needs_no_key(program: Program) -> None:
    done = program.run(*SCRIPT, "--provider", "embedded", "--no-check", env=ELSEWHERE)
    assert (done.code, done.err) == (0, "")
    assert read_profile_file(program, "config.toml") == '[model]\nprovider = "embedded"\n'


async def test_sections_set_up_by_a_script_count_as_finished(program: Program, env: dict[str, str]) -> None:
    await run(program, env, "--provider", "openai", "--key-from", "MY_KEY", "--toolsets", "files")
    assert json.loads(read_profile_file(program, "setup.json")) == {"finished": ["model", "tools"]}


async def test_search_engine_is_checked_and_saved_with_its_key(program: Program, env: dict[str, str]) -> None:
    async with search_servers() as servers:
        env |= {"TALARIA__WEB__ADDRESSES": json.dumps({"exa": f"{servers.base}/exa"}), "GOOD": ENGINE_KEY, "WRONG": "x"}
        arguments = ("--search-engine", "exa", "--search-key-from")
        failed = await run(program, env, *arguments, "WRONG")
        assert (failed.code, nothing_written(program)) == (1, True)
        assert "exa: Exa can't be used: it rejected EXA_API_KEY (HTTP 401)." in failed.out
        done = await run(program, env, *arguments, "GOOD")
    assert (done.code, read_profile_file(program, ".env")) == (0, f"EXA_API_KEY={ENGINE_KEY}\n")
    assert read_profile_file(program, "config.toml") == '[web]\nengines = ["exa", "duckduckgo"]\n'
    assert ENGINE_KEY not in done.out


async def test_invalid_search_engine_options_are_refused(program: Program, env: dict[str, str]) -> None:
    for arguments, reason in {
        ("--search-engine", "altavista"): "`altavista` isn't a search engine",
        ("--search-engine", "kagi"): "Kagi needs a key: add --search-key-from SOURCE.",
        ("--search-key-from", "MY_KEY"): "--search-key-from needs an engine",
    }.items():
        done = await run(program, env, *arguments)
        assert (done.code, nothing_written(program)) == (1, True)
        assert reason in done.err
    done = await run(program, env, "--search-engine", "http://127.0.0.1:8888")
    assert (done.code, read_profile_file(program, "config.toml")) == (
        0,
        '[web.addresses]\nsearxng = "http://127.0.0.1:8888"\n',
    )


async def test_named_account_is_set_up_by_its_prefixed_secrets(program: Program, env: dict[str, str]) -> None:
    program.run("config", "set", "platforms.work.network", "telegram")
    async with networks() as base:
        arguments = ("--chat", "WORK_TELEGRAM_BOT_TOKEN=-", "--network-url", f"telegram={base}")
        assert (await run(program, env, *arguments, typed="1:wrong\n")).code == 1
        done = await run(program, env, *arguments, typed=f"{TOKEN}\n")
    assert (done.code, done.err) == (0, "")
    assert "WORK_TELEGRAM_BOT_TOKEN: Telegram accepted the token" in done.out
    assert read_profile_file(program, ".env") == f"WORK_TELEGRAM_BOT_TOKEN={TOKEN}\n"
