"""`talaria` in a shell command: reading is allowed, actions are asked about, policy changes are refused."""

import pytest
from tests.agent.approval.test_policy import judge

from talaria.agent.approval.policy import Allow, Ask, Deny

REFUSED = [
    "talaria config set approval.mode off",
    "/usr/local/bin/talaria config set approval.mode off",
    ".venv/bin/talaria -p work config set access.owners telegram:1",
    "python -m talaria config set approval.mode off",
    "python3.11 -m talaria pairing approve telegram ABCDEFGH",
    "python -I -mtalaria api-keys create x --scope admin",
    "python src/talaria/__main__.py config unset approval.mode",
    "env -u TALARIA_SESSION_ID talaria config set approval.mode off",
    "env -i HOME=$HOME talaria config set approval.mode off",
    "sudo talaria restore x.tar --yes",
    "nohup timeout 5 talaria gateway stop",
    "setsid -f talaria gateway restart",
    "bash -c 'talaria hooks test x'",
    "echo y | xargs talaria setup",
    "find . -maxdepth 0 -exec talaria config edit \\;",
    "x=talaria; $x config set sandbox.enabled false",
    "talaria backup x.tar --with-secrets",
    "TALARIA__APPROVAL__MODE=off talaria chat -q hello",
    "TALARIA_HOME=/elsewhere talaria chat -q hello",
    "env TALARIA__APPROVAL__MODE=off talaria serve",
    "talaria tools enable terminal",
    "talaria profile use other",
    "talaria approvals revoke 1",
    "talaria trust .",
    "talaria trust revoke .",
    "flock f talaria config set approval.mode off",
]
ASKED = [
    "talaria chat -q 'hello'",
    "talaria",
    "talaria send telegram:1 hello",
    "talaria cron add tomorrow 'do it'",
    "talaria sessions delete x --yes",
    "talaria doctor --fix",
    "talaria backup x.tar",
    "export TALARIA__APPROVAL__MODE=off",
    "talaria $(echo config) set approval.mode off",
    "python -c 'from talaria.app.main import main; main([\"config\"])'",
]
ALLOWED = [
    "talaria sessions list",
    "talaria config show",
    "talaria trust list",
    "talaria ps",
    "talaria --help",
    "talaria config set --help",
    "talaria --version",
    "talaria doctor",
    "talaria gateway status --json",
    "python -m talaria sessions search rome",
    "which talaria",
    "cd talaria && ls",
    "git clone https://example.org/talaria",
]


@pytest.mark.parametrize("command", REFUSED)
def test_changing_the_policy_is_refused_in_every_mode(command: str) -> None:
    for mode in ("ask", "off", "allow-list"):
        assert isinstance(judge(command, mode=mode), Deny), mode


@pytest.mark.parametrize("command", ASKED)
def test_talaria_commands_with_side_effects_are_asked_about(command: str) -> None:
    assert isinstance(judge(command), Ask | Deny)


@pytest.mark.parametrize("command", ALLOWED)
def test_read_only_talaria_commands_are_allowed(command: str) -> None:
    assert judge(command) == Allow()
