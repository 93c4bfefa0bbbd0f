"""Modules that commands import at their start: only needed ones, so that the start stays fast."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.program import Program

from talaria.testing.model_server import ModelServer

HEAVY = {
    "apsw", "argparse", "asyncio", "contextlib", "dataclasses", "difflib", "inspect", "json", "logging", "msgspec",
    "pathlib", "psycopg", "tomlkit", "tomllib", "typing", "unicodedata",
}  # fmt: skip
NOT_FOR_LISTS = {
    "aiohttp", "asyncio", "difflib", "logging", "psycopg", "ssl", "subprocess", "tomlkit",
    "typing_extensions",
}  # fmt: skip
NOT_FOR_AN_ANSWER = {
    "bs4", "dataclasses", "lxml", "mcp", "numpy", "psycopg", "pydantic", "pypdfium2", "rich", "tomlkit", "wordllama",
    "xllamacpp", "aiohttp", "sqlite3", "urllib.request", "yarl", "difflib", "mimetypes", "shlex", "shutil", "tempfile",
    "talaria.providers.anthropic.adapter", "talaria.providers.openai_responses.adapter",
    "talaria.providers.embedded.adapter", "talaria.testing", "talaria.tools.web.html_text",
    "talaria.runtime.live.feed", "talaria.runtime.live.control",
    "talaria.agent.approval.policy", "talaria.cli.chat.line_reader", "talaria.commands.application",
    "talaria.goals.goal_store", "talaria.runtime.active_session", "talaria.storage.tables.jobs",
    "talaria.tools.sandbox.bubblewrap",
}  # fmt: skip
NOT_FOR_CHATS = {"nio", "peewee", "psycopg", "jsonschema", "Crypto", "pydantic", "numpy", "telegram", "httpx", "rich"}
# Modules of ours that a command may load. Lower a number after removing modules, and raise it only for a reason.
MOST_MODULES = {"short answers": 5, "lists": 73, "an answer": 196}
_COMMAND = """
import sys
from talaria.app.main import main
code = main(sys.argv[1:])
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""


def loaded(program: Program, *arguments: str) -> set[str]:
    """Return the names of all modules that a command imports, including those loaded by name."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        env=program.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines())


def count_ours(modules: set[str]) -> int:
    """Return the number of modules of this package, which each Python version loads alike."""
    return sum(name.partition(".")[0] == "talaria" for name in modules)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["-h"], ["help"]])
def test_version_and_help_import_almost_nothing(tmp_path: Path, arguments: list[str]) -> None:
    modules = loaded(Program(tmp_path), *arguments)
    assert "talaria.app.main" in modules
    assert modules & HEAVY == set()
    assert count_ours(modules) <= MOST_MODULES["short answers"]
    assert {one for one in modules if one.startswith("talaria.") and not one.startswith("talaria.app")} == set()


@pytest.mark.parametrize(
    "arguments", [["sessions", "list"], ["profile", "list"], ["completion", "--values", "sessions"]]
)
def test_list_commands_import_only_needed_modules(tmp_path: Path, arguments: list[str]) -> None:
    modules = loaded(Program(tmp_path), *arguments)
    assert modules & NOT_FOR_LISTS == set()
    assert count_ours(modules) <= MOST_MODULES["lists"]
    others = {"talaria.cli.commands.doctor.command", "talaria.cli.commands.backup", "talaria.storage.postgres"}
    assert {one for one in modules if one.startswith(tuple(others))} == set()


async def test_single_question_imports_only_the_modules_of_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(parents=True)
    async with ModelServer() as server:
        (folder / "config.toml").write_text(
            f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
        )
        modules = await asyncio.to_thread(loaded, Program(tmp_path), "chat", "-q", "hi")
    assert "talaria.providers.openai_chat.adapter" in modules
    assert modules & NOT_FOR_AN_ANSWER == set()
    assert count_ours(modules) <= MOST_MODULES["an answer"]


def test_prompt_of_the_chat_is_shown_before_the_agent_is_imported() -> None:
    script = "import sys, talaria.cli.chat.tui.start; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {name.split(".")[1] for name in done.stdout.split() if name.startswith("talaria.")}
    assert ours == {"cli", "core"}


def test_platform_adapters_import_no_heavy_libraries() -> None:
    script = (
        "import sys, importlib\n"
        "from talaria.settings.sections.chats import BUILT_IN_PLATFORMS\n"
        "for name in BUILT_IN_PLATFORMS: importlib.import_module(f'talaria.platforms.{name}.adapter')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "talaria.platforms.matrix.adapter" in modules
    assert modules & NOT_FOR_CHATS == set()
