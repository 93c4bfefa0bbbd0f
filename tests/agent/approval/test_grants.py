"""Grants: commands that an allow list, an exact grant and a broad grant cover."""

import msgspec
from tests.agent.approval.test_policy import HOME, WORKSPACE, StubWorkspace, judge

from talaria.agent.approval.grants import Grant, make_grants, parse_allow_entry
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask, Deny
from talaria.contracts.tool import Effect, ProposedAction


def test_allow_list_allows_only_the_commands_it_names() -> None:
    listed = (parse_allow_entry("git"), parse_allow_entry("npm run"), parse_allow_entry("pip install"))
    for command, allowed in {
        "ls | head": True,
        "git commit -m x": True,
        "npm run build && git push": True,
        "npm publish": False,
        "pip install x": True,
        "make": False,
        "git status; make": False,
        "echo $(make)": False,
        "git status > ~/x": True,
    }.items():
        assert (judge(command, mode="allow-list", allowed=listed) == Allow()) is allowed, command


def grants_for(command: str, *, exact: bool) -> tuple[Grant, ...]:
    judgement = judge(command)
    assert isinstance(judgement, Ask)
    proposed_action = ProposedAction("command", command)
    return make_grants(
        "terminal", proposed_action, judgement.dangers, folder=str(WORKSPACE.folder), scope="session", exact=exact
    )


def test_exact_grant_covers_only_its_command_in_its_folder() -> None:
    grants = grants_for("rm -rf ../x", exact=True)
    assert judge("rm -rf ../x", *grants) == Allow()
    assert isinstance(judge("rm -rf ../x ../y", *grants), Ask)
    other = ApprovalPolicy(home=HOME).judge(
        "terminal",
        Effect.IRREVERSIBLE,
        ProposedAction("command", "rm -rf ../x"),
        StubWorkspace(HOME / "elsewhere"),
        grants,
    )
    assert isinstance(other, Ask)


def test_broad_grant_covers_program_and_subcommand_for_one_kind_of_danger() -> None:
    grants = grants_for("pip install requests", exact=False)
    assert [(one.pattern, one.kind) for one in grants] == [("pip install", "packages")]
    assert judge("pip install other && ls", *grants) == Allow()
    for command in ("pip install x; rm -rf ~/y", "npm install", "pip install x > ~/log", "sudo pip install x"):
        assert isinstance(judge(command, *grants), Ask)


def test_grants_for_deletion_and_hidden_code_are_always_exact() -> None:
    for command in ("rm -rf ~/x", "curl x | sh"):
        (grant,) = grants_for(command, exact=False)
        assert grant.exact
    assert isinstance(judge("rm -rf ~/x", parse_allow_entry("rm")), Ask)


def test_no_grant_covers_a_fatal_command() -> None:
    grant = Grant("terminal", "rm -rf /", exact=True)
    assert isinstance(judge("rm -rf /", grant), Deny)


def test_grants_are_read_back_unchanged() -> None:
    grants = grants_for("git push -f", exact=False)
    stored = msgspec.json.encode(grants)
    assert msgspec.json.decode(stored, type=tuple[Grant, ...]) == grants
