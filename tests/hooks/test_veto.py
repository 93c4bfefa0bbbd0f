"""Hooks that can veto tool calls."""

from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client
from tests.hooks.hook_folders import write_hook

from talaria.core.events import ToolRefused
from talaria.hooks.discovery import Hook, find_hooks
from talaria.hooks.dispatcher import VetoHook, open_hooks
from talaria.testing.model_server import Ask, ModelServer, Say

GUARD = "events: tool:call\ntimeout_seconds: 20\n"
NO_PUSH = """\
async def handle(event, facts):
    if "push" in facts["target"]:
        return "pushing is for people"
"""


async def ask(hooks: Path, target: str) -> str:
    (found,) = find_hooks(hooks)
    assert isinstance(found, Hook)
    return await VetoHook(found, {"PATH": "/usr/bin:/bin"}).ask({"tool": "terminal", "target": target})


async def test_handler_refuses_a_call_by_returning_text(tmp_path: Path) -> None:
    write_hook(tmp_path, "guard", GUARD, NO_PUSH)
    assert await ask(tmp_path, "git push") == "The hook guard refused it: pushing is for people"
    assert await ask(tmp_path, "git status") == ""


@pytest.mark.slow
async def test_command_hook_refuses_a_call_with_exit_code_2(tmp_path: Path) -> None:
    script = "run: 'if grep -q push; then echo not today; exit 2; fi; echo fine'\n"
    write_hook(tmp_path, "guard", GUARD + script, "")
    assert await ask(tmp_path, "git push") == "The hook guard refused it: not today"
    assert await ask(tmp_path, "git status") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manifest", "handler", "reason"),
    [
        (GUARD, "def handle(event, facts):\n    raise ValueError('oops')\n", "it failed: ValueError: oops"),
        (GUARD + "run: exit 1\n", "", "it failed: the command ended with exit code 1"),
        ("events: tool:call\ntimeout_seconds: 0.2\nrun: sleep 600\n", "", "it took longer than 0.2 s"),
        (
            "events: tool:call\ntimeout_seconds: 0.2\n",
            "import threading\n\ndef handle(event, facts):\n    threading.Event().wait(60)\n",
            "it didn't answer within 0.2 s",
        ),
    ],
)
async def test_failed_or_hanging_veto_hook_refuses_the_call(
    tmp_path: Path, manifest: str, handler: str, reason: str
) -> None:
    write_hook(tmp_path, "guard", manifest, handler)
    assert reason in await ask(tmp_path, "ls")


async def test_veto_hook_gets_the_full_command(tmp_path: Path) -> None:
    write_hook(tmp_path, "guard", GUARD, NO_PUSH)
    assert await ask(tmp_path, f"echo {'x' * 10_000}; git push")


async def test_hook_for_all_events_has_no_veto(tmp_path: Path) -> None:
    write_hook(tmp_path, "notes")
    (found,) = find_hooks(tmp_path)
    assert isinstance(found, Hook)
    assert not found.manifest.may_veto


@pytest.mark.slow
async def test_vetoed_call_does_not_run_and_the_model_gets_the_reason(tmp_path: Path) -> None:
    write_hook(tmp_path / "home" / "profiles" / "default" / "hooks", "guard", GUARD, NO_PUSH)
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[approval]\nmode = 'off'\n") as client:
        server.script(
            Say(calls=[Ask("terminal", {"command": "touch push"}), Ask("terminal", {"command": "touch other"})]),
            Say("Done."),
        )
        await client.say("go")
        assert [file.name for file in (tmp_path / "work").iterdir()] == ["other"]
        assert [event.reason for event in client.events if isinstance(event, ToolRefused)] == [
            "The hook guard refused it: pushing is for people"
        ]
        assert b"pushing is for people" in server.received[-1].body


@pytest.mark.parametrize(("manifest", "handler"), [(GUARD, "this is not Python"), ("events: [tool:call\n", NO_PUSH)])
async def test_a_hook_that_cannot_be_loaded_refuses_every_call(tmp_path: Path, manifest: str, handler: str) -> None:
    write_hook(tmp_path, "guard", manifest, handler)
    assert "guard" in await open_hooks(tmp_path, {}).veto({"tool": "terminal", "target": "ls"})


async def test_a_disabled_hook_refuses_nothing(tmp_path: Path) -> None:
    write_hook(tmp_path, "guard", GUARD + "enabled: false\n", "this is not Python")
    assert await open_hooks(tmp_path, {}).veto({"tool": "terminal", "target": "ls"}) == ""
