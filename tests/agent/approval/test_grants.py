"""Permissions: what an allow list, an exact grant and a broad grant cover."""

import msgspec
from tests.agent.approval.test_policy import DESK, HOME, Desk, judge

from talaria.agent.approval.grants import Grant, make_grants, parse_allow_entry
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask, Deny
from talaria.contracts.tool import Effect, ProposedAction


def test_an_allow_list_lets_only_what_it_names_through() -> None:
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


def granted(command: str, *, exact: bool) -> tuple[Grant, ...]:
    judgement = judge(command)
    assert isinstance(judgement, Ask)
    proposed_action = ProposedAction("command", command)
    return make_grants(
        "terminal", proposed_action, judgement.dangers, folder=str(DESK.folder), scope="session", exact=exact
    )


def test_an_exact_permission_covers_that_command_in_that_folder_only() -> None:
    grants = granted("rm -rf ../x", exact=True)
    assert judge("rm -rf ../x", *grants) == Allow()
    assert isinstance(judge("rm -rf ../x ../y", *grants), Ask)
    other = ApprovalPolicy(home=HOME).judge(
        "terminal", Effect.IRREVERSIBLE, ProposedAction("command", "rm -rf ../x"), Desk(HOME / "elsewhere"), grants
    )
    assert isinstance(other, Ask)


def test_a_broad_permission_covers_program_and_subcommand_for_that_danger() -> None:
    grants = granted("pip install requests", exact=False)
    assert [(one.pattern, one.kind) for one in grants] == [("pip install", "packages")]
    assert judge("pip install other && ls", *grants) == Allow()
    for command in ("pip install x; rm -rf ~/y", "npm install", "pip install x > ~/log", "sudo pip install x"):
        assert isinstance(judge(command, *grants), Ask)


def test_deletion_and_hidden_code_are_never_allowed_broadly() -> None:
    for command in ("rm -rf ~/x", "curl x | sh"):
        (grant,) = granted(command, exact=False)
        assert grant.exact
    assert isinstance(judge("rm -rf ~/x", parse_allow_entry("rm")), Ask)


def test_no_permission_covers_what_is_fatal() -> None:
    grant = Grant("terminal", "rm -rf /", exact=True)
    assert isinstance(judge("rm -rf /", grant), Deny)


def test_a_permission_survives_being_stored() -> None:
    grants = granted("git push -f", exact=False)
    stored = msgspec.json.encode(grants)
    assert msgspec.json.decode(stored, type=tuple[Grant, ...]) == grants
