"""Commands that change the policy do not run from within a session, even if the session is hidden."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Outcome, Program

POLICY = [
    ["config", "set", "approval.mode", "off"],
    ["config", "unset", "approval.mode"],
    ["--profile", "default", "config", "set", "access.owners", "telegram:1"],
    ["api-keys", "create", "mine", "--scope", "admin"],
    ["pairing", "approve", "telegram", "ABCDEFGH"],
    ["backup", "all.tar", "--with-secrets"],
    ["restore", "all.tar", "--yes"],
    ["hooks", "test", "mine"],
    ["setup", "--non-interactive", "--approval", "off"],
    ["profile", "create", "other", "--use"],
    ["tools", "enable", "terminal"],
    ["gateway", "stop"],
    ["approvals", "revoke", "1"],
    ["web", "--no-open"],
    ["web", "pair"],
    ["web", "revoke", "1"],
]
FROM_A_TOOL = {"TALARIA_SESSION_ID": "20260101-000000-abcdef"}
SENTENCE = "can't be run from inside one of its conversations. Run it in your own terminal."


def run_in(shell: str, program: Program, **more: str) -> Outcome:
    done = subprocess.run(
        ["sh", "-c", shell],
        env=program.environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("arguments", POLICY, ids=" ".join)
def test_policy_commands_are_refused_from_a_tool(tmp_path: Path, arguments: list[str]) -> None:
    outcome = Program(tmp_path).run(*arguments, env=FROM_A_TOOL)
    assert outcome.code == 1
    assert SENTENCE in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "config.toml").exists()


@pytest.mark.parametrize(
    "arguments",
    [["sessions", "list"], ["config", "show"], ["ps"], ["pairing", "list"], ["config", "path"], ["web", "browsers"]],
)
def test_harmless_commands_run_from_a_tool(tmp_path: Path, arguments: list[str]) -> None:
    assert Program(tmp_path).run(*arguments, env=FROM_A_TOOL).code == 0


def test_policy_command_runs_for_a_person(tmp_path: Path) -> None:
    assert Program(tmp_path).run("config", "set", "approval.mode", "allow-list").code == 0


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="There is no /proc on this machine.")
@pytest.mark.parametrize(
    "shell",
    [
        f"env -u TALARIA_SESSION_ID {TALARIA} config set approval.mode off; true",
        f"unset TALARIA_SESSION_ID; {TALARIA} config set approval.mode off; true",
        f"env -i HOME=$HOME TALARIA_HOME=$TALARIA_HOME PATH=$PATH {TALARIA} config set approval.mode off; true",
        f"TALARIA_SESSION_ID= {sys.executable} -m talaria config set approval.mode off; true",
        f"sh -c 'unset TALARIA_SESSION_ID; sh -c \"{TALARIA} config set approval.mode off; true\"; true'; true",
    ],
)
def test_policy_command_is_refused_if_the_session_variable_was_removed(tmp_path: Path, shell: str) -> None:
    outcome = run_in(shell, Program(tmp_path), **FROM_A_TOOL)
    assert SENTENCE in outcome.err


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="There is no /proc on this machine.")
def test_policy_command_of_an_orphaned_process_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    change = f"setsid {TALARIA} config set approval.mode off"
    orphan = f"env -i HOME={tmp_path} TALARIA_HOME={tmp_path} {change} >{out} 2>&1; echo done >>{out}"
    marked = (
        "import subprocess, sys; from talaria.core.own_commands import mark_children; mark_children();"
        "subprocess.run(['sh', '-c', '(' + sys.argv[1] + ') &'], env={})"
    )
    subprocess.run([sys.executable, "-c", marked, orphan], check=True, timeout=60)
    read = f"until grep -q done {out}; do :; done; cat {out}"
    done = subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True, timeout=60)
    assert SENTENCE in done.stdout


def test_policy_variables_are_refused_for_an_agent_started_by_a_tool(tmp_path: Path) -> None:
    outcome = Program(tmp_path).run("chat", "-q", "hello", env={**FROM_A_TOOL, "TALARIA__APPROVAL__MODE": "off"})
    assert outcome.code == 1
    assert "TALARIA__APPROVAL__MODE can't be set from inside a conversation" in outcome.err
