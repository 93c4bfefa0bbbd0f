"""`talaria setup` on a terminal: questions, checks and written settings."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.setup.network_servers import TOKEN, networks
from tests.cli.terminal_dialogue import dialogue
from tests.tools.web.engine_servers import ENGINE_ID, search_servers
from tests.tools.web.engine_servers import KEY as ENGINE_KEY

from talaria.platforms.line.settings import PORT as LINE_PORT
from talaria.providers.presets import PRESETS
from talaria.settings.model import TOOLSETS
from talaria.testing.model_server import ModelServer
from talaria.tools.sandbox.bubblewrap import find_sandbox_problem

KEY = "sk-right-0123456789"
DEAD = "http://127.0.0.1:9/v1"
ELSEWHERE = {f"TALARIA__PROVIDERS__{preset.name.upper()}__BASE_URL": DEAD for preset in PRESETS}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(keys=[KEY], models=["gpt-5", "gpt-6.1-terra", "nameless"]) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def env(server: ModelServer) -> dict[str, str]:
    """Variables that make OpenAI the scripted server and all other providers unreachable."""
    return {**ELSEWHERE, "TALARIA__PROVIDERS__OPENAI__BASE_URL": f"{server.url}/v1", "NO_COLOR": "1"}


def read_profile_file(program: Program, name: str) -> str:
    file = program.home / "profiles" / "default" / name
    return file.read_text() if file.exists() else ""


async def test_complete_setup_writes_settings_and_secrets(program: Program, env: dict[str, str]) -> None:
    async with networks() as base, dialogue(program, "setup", "--network-url", f"telegram={base}", env=env) as talk:
        await talk.answer("Provider", "openai")
        await talk.answer("Key OPENAI_API_KEY", KEY)
        await talk.answer("Model [gpt-6.1-terra]", "gpt-5")
        await talk.answer("Networks [none]", "telegram")
        await talk.answer("TELEGRAM_BOT_TOKEN", TOKEN)
        await talk.answer("Toolsets", "files, web")
        await talk.answer("Web search", "http://127.0.0.1:8888")
        await talk.answer("Approval [ask]", "allow-list")
        assert await talk.end() == 0
    assert "No API key, sign-in or local server was found" in talk.text or "No model can be used" in talk.text
    assert "Saved OPENAI_API_KEY ****6789" in talk.text
    assert "openai:gpt-5 answers." in talk.text
    assert "Telegram accepted the token: @winged_bot." in talk.text
    assert KEY not in talk.text
    assert TOKEN not in talk.text
    assert "Model:    openai:gpt-5. Chosen by the setting `model.provider`." in talk.text
    assert "Chats:    Telegram, when the gateway runs." in talk.text
    assert "ask before everything except reading and the commands in `approval.allowed`" in talk.text
    assert "Run `talaria` to chat" in talk.text
    assert read_profile_file(program, ".env") == f"OPENAI_API_KEY={KEY}\nTELEGRAM_BOT_TOKEN={TOKEN}\n"
    assert read_profile_file(program, "config.toml") == (
        '[model]\nprovider = "openai"\nname = "gpt-5"\n\n[tools]\ntoolsets = ["files", "web"]\n\n'
        '[web.addresses]\nsearxng = "http://127.0.0.1:8888"\n\n[approval]\nmode = "allow-list"\n'
    )


async def test_wrong_key_is_reported_and_can_be_replaced(program: Program, env: dict[str, str]) -> None:
    async with dialogue(program, "setup", "model", env=env) as talk:
        await talk.answer("Provider", "3")  # after the two subscriptions
        await talk.answer("Key OPENAI_API_KEY", "sk-wrong")
        await talk.wait_for_question("What next? [another]")
        assert "OpenAI rejected this key. Copy it again" in talk.text
        assert read_profile_file(program, ".env") + read_profile_file(program, "config.toml") == ""
        await talk.answer("What next? [another]", "another")
        await talk.answer("Key OPENAI_API_KEY", KEY)
        await talk.answer("Model", "")
        assert await talk.end() == 0
    assert read_profile_file(program, ".env") == f"OPENAI_API_KEY={KEY}\n"
    assert 'name = "gpt-6.1-terra"' in read_profile_file(program, "config.toml")


async def test_unchecked_key_is_saved_on_request(program: Program, env: dict[str, str]) -> None:
    async with dialogue(program, "setup", "model", env=env) as talk:
        await talk.answer("Provider", "anthropic")
        await talk.answer("Key ANTHROPIC_API_KEY", "sk-ant-unchecked-0123")
        await talk.answer("What next? [again]", "")
        await talk.wait_for_question("What next? [again]")
        assert f"Can't reach Anthropic at {DEAD}. Check the network and the address." in talk.text
        await talk.answer("What next?", "keep")
        await talk.answer("Model, as the provider calls it", "claude-opus-5-5")
        assert await talk.end() == 0
    assert read_profile_file(program, ".env") == "ANTHROPIC_API_KEY=sk-ant-unchecked-0123\n"
    assert 'provider = "anthropic"\nname = "claude-opus-5-5"' in read_profile_file(program, "config.toml")


async def test_check_of_a_silent_provider_times_out(program: Program, env: dict[str, str]) -> None:
    async with networks() as base:
        silent = {
            "TALARIA__PROVIDERS__GROQ__BASE_URL": f"{base}/silent",
            "TALARIA__PROVIDERS__GROQ__FIRST_TIMEOUT_SECONDS": "0.3",
        }
        async with dialogue(program, "setup", "model", env={**env, **silent}) as talk:
            await talk.answer("Provider", "groq")
            await talk.answer("Key GROQ_API_KEY", "gsk-x")
            await talk.answer("What next?", "skip")
            assert await talk.end() == 0
    assert "Groq didn't answer within 0.3 s. Try again in a moment." in talk.text
    assert read_profile_file(program, ".env") + read_profile_file(program, "config.toml") == ""


async def test_wrong_openrouter_key_is_detected_despite_public_models(program: Program, env: dict[str, str]) -> None:
    async with networks() as base:
        here = {"TALARIA__PROVIDERS__OPENROUTER__BASE_URL": f"{base}/openrouter"}
        async with dialogue(program, "setup", "model", env={**env, **here}) as talk:
            await talk.answer("Provider", "openrouter")
            await talk.answer("Key OPENROUTER_API_KEY", "wrong")
            await talk.answer("What next?", "another")
            await talk.answer("Key OPENROUTER_API_KEY", TOKEN)
            await talk.answer("Model", "")
            await talk.answer("Choose another model?", "n")
            assert await talk.end() == 0
    assert "OpenRouter rejected this key" in talk.text
    assert read_profile_file(program, ".env") == f"OPENROUTER_API_KEY={TOKEN}\n"


async def test_own_server_is_added_by_its_address(program: Program, env: dict[str, str]) -> None:
    async with ModelServer(models=["mine-large"]) as own:
        async with dialogue(program, "setup", "model", env=env) as talk:
            await talk.answer("Provider", "own")
            await talk.answer("Address", "127.0.0.1")
            await talk.answer("Address", own.url)
            await talk.answer("Name for this server [mine]", "openai")
            await talk.answer("Name for this server [mine]", "box")
            await talk.answer("Key BOX_API_KEY (not shown) [no key]", "")
            await talk.answer("What next? [address]", "")
            await talk.answer(f"Address [{own.url}]", f"{own.url}/v1/")
            await talk.answer("Model [mine-large]", "")
            assert await talk.end() == 0
        assert "has no list of models. The address usually ends in /v1." in talk.text
        assert "The address must start with http:// or https://." in talk.text
        assert "`openai` can't be used" in talk.text
        assert "Model:    box:mine-large." in talk.text
        assert read_profile_file(program, "config.toml") == (
            f'[providers.box]\nbase_url = "{own.url}/v1"\n\n[model]\nprovider = "box"\nname = "mine-large"\n'
        )
        assert read_profile_file(program, ".env") == ""


@pytest.mark.parametrize(("exit_key", "code"), [("quit", 0), ("c-d", 0), ("c-c", 130)])
async def test_interrupted_setup_is_resumed_at_its_section(
    program: Program, env: dict[str, str], exit_key: str, code: int
) -> None:
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Provider", "openai")
        await talk.answer("Key", KEY)
        await talk.answer("Model", "")
        if exit_key == "quit":
            await talk.answer("Networks", exit_key)
        else:
            await talk.press("Networks", exit_key)
        assert await talk.end() == code
        assert "`talaria setup` continues, starting with: Chat networks." in " ".join(talk.text.split())
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Networks", "none")
        assert "Already done: Model. Continuing with: Chat networks." in talk.text
        await talk.answer("Toolsets", "files")
        await talk.answer("Approval", "")
        assert await talk.end() == 0
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Which section? [all]", "chat")
        await talk.answer("Networks", "")
        assert await talk.end() == 0


@pytest.mark.parametrize("key", ["c-c", "c-d"])
async def test_setup_can_be_interrupted_while_a_key_is_typed(program: Program, env: dict[str, str], key: str) -> None:
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Provider", "openai")
        await talk.press("Key", key)
        await talk.end()
    assert "Stopped here." in talk.text
    assert "Traceback" not in talk.text
    assert read_profile_file(program, "config.toml") == ""


async def test_setup_can_be_interrupted_while_a_provider_is_checked(program: Program, env: dict[str, str]) -> None:
    async with networks() as base:
        silent = {"TALARIA__PROVIDERS__GROQ__BASE_URL": f"{base}/silent"}
        async with dialogue(program, "setup", "model", env={**env, **silent}) as talk:
            await talk.answer("Provider", "groq")
            await talk.answer("Key GROQ_API_KEY", "gsk-x")
            await talk.screen.wait_for("Checking with Groq")
            await talk.screen.press("c-c")
            assert await talk.end() == 130
    assert "Stopped here." in talk.text
    assert "Traceback" not in talk.text
    assert read_profile_file(program, ".env") == ""


async def test_sandbox_is_offered_if_it_is_available(program: Program, env: dict[str, str]) -> None:
    async with dialogue(program, "setup", "tools", env=env) as talk:
        await talk.answer("Toolsets", "terminal")
        if find_sandbox_problem() is None:
            await talk.answer("Sandbox [auto]", "perhaps")
            await talk.answer("Sandbox [auto]", "on")
            await talk.answer("May sandboxed commands use the network? [Y/n]", "n")
        await talk.answer("Approval", "")
        assert await talk.end() == 0
    if find_sandbox_problem() is None:
        assert "[sandbox]\nenabled = true\nnetwork = false\n" in read_profile_file(program, "config.toml")
    else:
        assert "A sandbox for commands isn't available here: " in talk.text


async def test_questions_have_help_and_can_go_back(program: Program, env: dict[str, str]) -> None:
    program.run("config", "set", "tools.toolsets", "web")
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Provider", "back")
        await talk.answer("Provider", "?")
        await talk.answer("Provider", "opnai")
        await talk.answer("Provider", "openai")
        await talk.answer("Key", "?")
        await talk.answer("Key", "back")
        await talk.answer("Provider", "skip")
        await talk.answer("Networks", "back")
        await talk.answer("Provider", "skip")
        await talk.answer("Networks", "skip")
        await talk.answer("Toolsets", "skip")
        await talk.answer("Web search", "?")
        await talk.answer("Web search", "skip")
        await talk.answer("Approval", "skip")
        assert await talk.end() == 0
    assert "This is the first question." in talk.text
    assert "did you mean openai?" in talk.text
    assert "A provider runs the models." in talk.text
    assert "API keys section of your OpenAI account" in talk.text
    assert (
        read_profile_file(program, "config.toml") + read_profile_file(program, ".env")
        == '[tools]\ntoolsets = ["web"]\n'
    )


async def test_earlier_answers_are_the_defaults(program: Program, env: dict[str, str]) -> None:
    program.run("config", "set", "OPENAI_API_KEY", KEY)
    program.run("config", "set", "tools.toolsets", "files")
    async with dialogue(program, "setup", env=env) as talk:
        await talk.answer("Provider [openai]", "")
        await talk.answer("Key OPENAI_API_KEY (not shown) [keep ****6789]", "")
        await talk.answer("Model [gpt-6.1-terra]", "pt-5")
        await talk.answer("Model [gpt-5]", "")
        await talk.answer("Networks", "")
        await talk.answer("Toolsets to turn on [files]", ", ".join(TOOLSETS))
        await talk.answer("Web search [duckduckgo]", "quit")
        await talk.end()
    assert re.search("openai +OpenAI, OPENAI_API_KEY is set", talk.text)
    assert "toolsets" not in read_profile_file(program, "config.toml")


async def test_tokens_of_all_selected_networks_are_saved(program: Program, env: dict[str, str]) -> None:
    async with networks() as base:
        urls = [word for name in ("telegram", "discord", "slack") for word in ("--network-url", f"{name}={base}")]
        async with dialogue(program, "setup", "chat", *urls, env=env) as talk:
            await talk.answer("Networks", "1, discord, 3, Matrix")
            await talk.answer("TELEGRAM_BOT_TOKEN", "1:wrong")
            await talk.answer("What next?", "skip")
            await talk.answer("DISCORD_BOT_TOKEN", TOKEN)
            await talk.answer("SLACK_BOT_TOKEN", TOKEN)
            await talk.answer("SLACK_APP_TOKEN", TOKEN)
            await talk.answer("Matrix server", f"{base}/")
            await talk.answer("MATRIX_ACCESS_TOKEN", TOKEN)
            assert await talk.end() == 0
        secrets = read_profile_file(program, ".env").splitlines()
    names = ["DISCORD_BOT_TOKEN", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "MATRIX_HOMESERVER", "MATRIX_ACCESS_TOKEN"]
    assert [line.partition("=")[0] for line in secrets] == names
    assert "The gateway uses these answers when it runs" in talk.text
    assert "Matrix accepted the token: @winged:example.org." in talk.text
    assert TOKEN not in talk.text


async def test_variable_that_overrides_the_typed_key_is_reported(program: Program, env: dict[str, str]) -> None:
    async with dialogue(program, "setup", "model", env={**env, "OPENAI_API_KEY": "sk-old-0123456789abc"}) as talk:
        await talk.answer("Provider [openai]", "")
        await talk.answer("Key OPENAI_API_KEY (not shown) [keep ****9abc]", KEY)
        await talk.answer("Model", "")
        await talk.answer("Choose another model?", "n")
        await talk.end()
    assert "rejected the API key OPENAI_API_KEY (HTTP 401)" in " ".join(talk.text.split())
    assert "OPENAI_API_KEY has another value and overrides the file" in " ".join(talk.text.split())


async def test_setup_works_on_a_dumb_terminal(program: Program, env: dict[str, str]) -> None:
    del env["NO_COLOR"]
    async with dialogue(program, "setup", "tools", env={**env, "TERM": "dumb"}) as talk:
        await talk.answer("Toolsets", "none")
        await talk.answer("Approval", "")
        assert await talk.end() == 0
    assert "On: none." in talk.text
    assert not any(cell.bold for row in talk.screen.styled for cell in row)


async def test_key_of_a_search_engine_is_checked_before_it_is_saved(program: Program, env: dict[str, str]) -> None:
    async with search_servers() as servers:
        env |= {
            "TALARIA__WEB__ADDRESSES": json.dumps({"tavily": f"{servers.base}/tavily"}),
            "BRAVE_API_KEY": "b-0123456789",
        }
        async with dialogue(program, "setup", "tools", env=env) as talk:
            await talk.answer("Toolsets", "web")
            await talk.answer("Web search [brave]", "tavli")
            await talk.answer("Web search [brave]", "tavily")
            await talk.answer("TAVILY_API_KEY", "wrong")
            await talk.answer("What next? [another]", "")
            await talk.answer("TAVILY_API_KEY", ENGINE_KEY)
            await talk.answer("Approval", "skip")
            assert await talk.end() == 0
    assert "Tavily can't be used: it rejected TAVILY_API_KEY (HTTP 401)." in talk.text
    assert "Tavily answers." in talk.text
    assert "Web searches use Tavily." in talk.text
    assert read_profile_file(program, ".env") == f"TAVILY_API_KEY={ENGINE_KEY}\n"
    assert 'engines = ["tavily", "brave", "duckduckgo"]' in read_profile_file(program, "config.toml")


async def test_google_also_needs_the_id_of_a_search_engine(program: Program, env: dict[str, str]) -> None:
    async with search_servers() as servers:
        env["TALARIA__WEB__ADDRESSES"] = json.dumps({"google": f"{servers.base}/google"})
        async with dialogue(program, "setup", "tools", env=env) as talk:
            await talk.answer("Toolsets", "web")
            await talk.answer("Web search [duckduckgo]", "google")
            await talk.answer("Search engine id", ENGINE_ID)
            await talk.answer("GOOGLE_CSE_API_KEY", ENGINE_KEY)
            await talk.answer("Approval", "skip")
            assert await talk.end() == 0
    assert "Google answers." in talk.text
    assert read_profile_file(program, "config.toml").endswith(f'[web]\ngoogle_engine_id = "{ENGINE_ID}"\n')


async def test_a_second_account_is_added_checked_and_removed(program: Program, env: dict[str, str]) -> None:
    program.run("config", "set", "TELEGRAM_BOT_TOKEN", TOKEN)
    async with networks() as base:
        command = ("setup", "chat", "--network-url", f"telegram={base}")
        async with dialogue(program, *command, env=env) as talk:
            await talk.answer("Networks [telegram]", "")
            await talk.answer("Telegram [change]", "add")
            await talk.answer("Name of the new account", "Work!")
            await talk.answer("Name of the new account", "slack")
            await talk.answer("Name of the new account", "work")
            await talk.answer("WORK_TELEGRAM_BOT_TOKEN", "1:wrong")
            await talk.answer("What next?", "another")
            await talk.answer("WORK_TELEGRAM_BOT_TOKEN", TOKEN)
            assert await talk.end() == 0
        assert "A name has lower-case letters" in talk.text
        assert "`slack` is taken" in talk.text
        assert "Saved WORK_TELEGRAM_BOT_TOKEN ****" in talk.text
        assert "Chats:    Telegram, Telegram (work), when the gateway runs." in talk.text
        assert read_profile_file(program, "config.toml") == '[platforms.work]\nnetwork = "telegram"\n'
        async with dialogue(program, *command, env=env) as talk:
            await talk.answer("Networks [telegram]", "")
            await talk.answer("Telegram [change]", "check")
            await talk.answer("Account [telegram]", "work")
            assert await talk.end() == 0
        assert "Telegram is set up: telegram, work." in talk.text
        assert "Telegram accepted the token" in talk.text
        async with dialogue(program, *command, env=env) as talk:
            await talk.answer("Networks [telegram]", "")
            await talk.answer("Telegram [change]", "remove")
            await talk.answer("Account [telegram]", "work")
            await talk.answer("Remove work?", "y")
            assert await talk.end() == 0
    assert read_profile_file(program, ".env") == f"TELEGRAM_BOT_TOKEN={TOKEN}\n"
    assert read_profile_file(program, "config.toml") == ""


async def test_a_second_account_of_a_network_with_webhooks_gets_its_own_port(
    program: Program, env: dict[str, str]
) -> None:
    for name in ("LINE_CHANNEL_TOKEN", "LINE_CHANNEL_SECRET"):
        program.run("config", "set", name, TOKEN)
    async with dialogue(program, "setup", "chat", "--no-check", env=env) as talk:
        await talk.answer("Networks [line]", "")
        await talk.answer("LINE [change]", "add")
        await talk.answer("Name of the new account", "shop")
        await talk.answer("SHOP_LINE_CHANNEL_TOKEN", "token")
        await talk.answer("SHOP_LINE_CHANNEL_SECRET", "secret")
        await talk.answer("Public address", "https://bot.example.org/shop")
        await talk.answer(f"Port [{LINE_PORT + 1}]", str(LINE_PORT))
        await talk.answer(f"Port [{LINE_PORT + 1}]", "")
        assert await talk.end() == 0
    assert f"Another account uses {LINE_PORT} already." in talk.text
    assert f'port = "{LINE_PORT + 1}"' in read_profile_file(program, "config.toml")
    program.run("config", "set", "platforms.line.options.public_url", "https://bot.example.org/line")
    assert "LINE (shop) is set up" in program.run("doctor", "--offline").out


async def test_unreachable_network_is_reported_and_its_answers_can_be_changed(
    program: Program, env: dict[str, str]
) -> None:
    async with dialogue(program, "setup", "chat", env=env) as talk:
        await talk.answer("Networks [none]", "xmpp")
        await talk.answer("Address of the bot", "talaria@example.org")
        await talk.answer("Server [none]", "127.0.0.1:9")
        await talk.answer("XMPP_PASSWORD", "secret")
        await talk.answer("What next? [again]", "5")
        await talk.answer("Server [127.0.0.1:9]", "")
        await talk.answer("XMPP_PASSWORD", "skip")
        await talk.answer("Rooms [none]", "")
        assert await talk.end() == 0
    assert "can't be reached: Connection refused." in " ".join(talk.text.split())
    assert "XMPP isn't complete yet, so the gateway doesn't serve it." in talk.text
