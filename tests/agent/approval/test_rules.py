"""Approval rules of the settings: matching, and precedence between several rules."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.approval.test_policy import HOME, WORKSPACE

from talaria.agent.approval.grants import Grant
from talaria.agent.approval.policy import Allow, ApprovalPolicy, ApprovalRule, Ask, Deny, Judgement, Mode, RuleAction
from talaria.contracts.tool import Effect, ProposedAction

ACTIONS: tuple[RuleAction, ...] = ("deny", "ask", "allow")
COMMANDS = (
    "git push origin main",
    "pip install requests",
    "ls -l",
    "sudo rm x",
    "rm -rf /",
    "git -C sub status",
    "make",
)
PATTERNS = ("", "git", "git push", "pip", "pip install", "ls", "m*", "*", "git * origin")


def run(command: str, *rules: ApprovalRule, mode: Mode = "ask", grants: tuple[Grant, ...] = ()) -> Judgement:
    policy = ApprovalPolicy(home=HOME, mode=mode, rules=rules)
    return policy.judge("terminal", Effect.IRREVERSIBLE, ProposedAction("command", command), WORKSPACE, grants)


def write(path: str, *rules: ApprovalRule) -> Judgement:
    policy = ApprovalPolicy(home=HOME, rules=rules)
    return policy.judge("write_file", Effect.IDEMPOTENT, ProposedAction("write", path), WORKSPACE)


def rule(action: RuleAction, **fields: str) -> ApprovalRule:
    return ApprovalRule(name=action, action=action, **fields)


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git  push origin",
        "cd x && git push",
        "sh -c 'git push'",
        "git -C sub push",
        "env A=1 git push",
        "/usr/bin/git push",
    ],
)
def test_denied_command_is_recognised_in_every_spelling(command: str) -> None:
    assert isinstance(run(command, rule("deny", command="git push")), Deny)


@pytest.mark.parametrize("command", ["git status", "echo git push", "gitpush"])
def test_other_commands_are_not_denied(command: str) -> None:
    assert not isinstance(run(command, rule("deny", command="git push")), Deny)


def test_rule_matches_tools_by_wildcard() -> None:
    assert isinstance(write("a.txt", rule("deny", tool="write_*")), Deny)
    assert isinstance(write("a.txt", rule("deny", tool="edit_*")), Allow)


@pytest.mark.parametrize(("path", "denied"), [("src/a", True), ("docs/a", False), ("docs/../src/a", True)])
def test_rule_matches_files_by_folder(path: str, *, denied: bool) -> None:
    assert isinstance(write(path, rule("deny", folder="~/project/src")), Deny) is denied


def test_rule_matches_commands_by_working_folder() -> None:
    assert isinstance(run("ls", rule("ask", folder=str(WORKSPACE.folder))), Ask)
    assert isinstance(run("ls", rule("ask", folder="/elsewhere")), Allow)


def test_an_allowed_command_runs_without_a_question() -> None:
    assert isinstance(run("pip install requests"), Ask)
    assert isinstance(run("pip install requests", rule("allow", command="pip install")), Allow)
    assert isinstance(run("pip install requests", rule("allow", command="pip install requests")), Allow)


@pytest.mark.parametrize("command", ["pip install a; pip install b", "pip install a && sudo ls", "sudo pip install a"])
def test_allowed_command_does_not_allow_other_commands_on_the_same_line(command: str) -> None:
    assert isinstance(run(command, rule("allow", command="pip install a")), Ask)


def test_ask_rule_is_satisfied_only_by_an_exact_grant() -> None:
    asking = rule("ask", command="ls")
    assert isinstance(run("ls -l", asking, mode="off"), Ask)
    exact = Grant("terminal", "ls -l", exact=True, folder=str(WORKSPACE.folder))
    assert isinstance(run("ls -l", asking, grants=(exact,)), Allow)
    assert isinstance(run("ls -l", asking, grants=(Grant("", "ls"),)), Ask)


def test_rule_is_limited_to_its_person_and_surface() -> None:
    assert rule("deny", surface="telegram", person="anna").is_for("telegram", "anna")
    assert not rule("deny", surface="telegram").is_for("cli", "owner")
    assert not rule("deny", person="anna").is_for("cli", "owner")


rules = st.lists(
    st.builds(
        ApprovalRule,
        name=st.sampled_from(("one", "two")),
        action=st.sampled_from(ACTIONS),
        tool=st.sampled_from(("", "terminal", "t*", "write_file")),
        command=st.sampled_from(PATTERNS),
        folder=st.sampled_from(("", str(WORKSPACE.folder), "/elsewhere", "~/project")),
    ),
    max_size=5,
)
commands = st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=3).map("; ".join)
modes = st.sampled_from(("ask", "allow-list", "off"))
STRENGTH = {Allow: 0, Ask: 1, Deny: 2}


@given(commands, rules, modes)
def test_order_of_rules_does_not_change_the_judgement(command: str, some: list[ApprovalRule], mode: Mode) -> None:
    assert type(run(command, *some, mode=mode)) is type(run(command, *reversed(some), mode=mode))


@given(commands, rules, modes)
def test_added_rule_changes_the_judgement_only_in_its_own_direction(
    command: str, some: list[ApprovalRule], mode: Mode
) -> None:
    for index, added in enumerate(some):
        rest = [*some[:index], *some[index + 1 :]]
        change = STRENGTH[type(run(command, *some, mode=mode))] - STRENGTH[type(run(command, *rest, mode=mode))]
        assert change <= 0 if added.action == "allow" else change >= 0


@given(commands, rules, modes)
def test_matching_deny_rule_always_wins(command: str, some: list[ApprovalRule], mode: Mode) -> None:
    assert isinstance(run(command, *some, rule("deny"), mode=mode), Deny)


@given(commands, rules, modes)
def test_matching_ask_rule_is_not_overruled_by_allow_rules(command: str, some: list[ApprovalRule], mode: Mode) -> None:
    assert not isinstance(run(command, *some, rule("ask"), rule("allow"), mode=mode), Allow)


@given(rules, modes)
def test_no_rule_allows_a_fatal_command(some: list[ApprovalRule], mode: Mode) -> None:
    assert isinstance(run("rm -rf /", *some, rule("allow"), mode=mode), Deny)


READING = [
    "ls -l", "cat a | grep b", "git status", "git log -3", "git diff HEAD~1", "cd src && ls", "echo x > /dev/null",
    "head -3 a 2>/dev/null",
]  # fmt: skip
CHANGING = [
    "echo x > a", "touch a", "rm a", "git commit -m x", "git diff --output=a", "sort -o a b", "sed -i s/a/b/ c", "make",
    "python x.py", "cat a | tee b", "find . -delete", "uniq a b", "$X", "sh -c 'touch a'", "ls; touch a",
    "git -c alias.status='!touch a' status", "curl -o a http://x", "echo $(touch a)",
]  # fmt: skip


@pytest.mark.parametrize("command", READING)
def test_read_only_commands_are_recognised(command: str) -> None:
    policy = ApprovalPolicy(home=HOME)
    assert policy.only_reads("terminal", Effect.IRREVERSIBLE, ProposedAction("command", command), WORKSPACE)


@pytest.mark.parametrize("command", CHANGING)
def test_commands_with_side_effects_do_not_count_as_reading(command: str) -> None:
    policy = ApprovalPolicy(home=HOME, mode="off")
    assert not policy.only_reads("terminal", Effect.IRREVERSIBLE, ProposedAction("command", command), WORKSPACE)


def test_code_writing_and_sending_do_not_count_as_reading() -> None:
    policy = ApprovalPolicy(home=Path("/homes/person"), mode="off")
    calls = [("code", "1 + 1"), ("write", "a"), ("send", "hi"), ("other", "something")]
    for kind, target in calls:
        action = ProposedAction(kind, target)  # type: ignore[arg-type]
        assert not policy.only_reads("tool", Effect.IRREVERSIBLE, action, WORKSPACE)
        assert not policy.only_reads("tool", Effect.IDEMPOTENT, action, WORKSPACE)
    assert policy.only_reads("read_file", Effect.READS, ProposedAction("read", "a"), WORKSPACE)
