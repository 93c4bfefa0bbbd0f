"""Others than the owner: their own folder, the tools that are for them, and nothing that anybody could allow."""

from pathlib import Path

import pytest
from tests.tools.tool_calls import Folder

from talaria.agent.approval.grants import Grant
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Confinement, Deny, Judgement, Mode
from talaria.contracts.tool import Effect, ProposedAction
from talaria.tools.workspace import LocalWorkspace


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name in ("own", "others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(name)
    return tmp_path / "own"


def judge(own: Path, proposed_action: ProposedAction, *, mode: Mode = "off", tool: str = "read_file") -> Judgement:
    confined = Confinement((own, own.parent / "media"), {"read_file", "write_file"}.__contains__)
    grants = [Grant("", proposed_action.target, exact=True)]
    policy = ApprovalPolicy(home=own.parent, mode=mode, confined=confined)
    return policy.judge(tool, Effect.READS, proposed_action, LocalWorkspace(own, {"HOME": str(own.parent)}), grants)


@pytest.mark.parametrize("target", ["notes.txt", ".", "new/file.txt", "../media/a.txt", "../own/notes.txt"])
@pytest.mark.parametrize("mode", ["ask", "off"])
def test_they_read_and_write_what_is_theirs(own: Path, target: str, mode: Mode) -> None:
    assert judge(own, ProposedAction("read", target), mode=mode) == Allow()
    assert judge(own, ProposedAction("write", target), mode=mode, tool="write_file") == Allow()


@pytest.mark.parametrize(
    "target", ["..", "../others/notes.txt", "~", "~/others", "/etc/passwd", "~nobody-at-all/x", "a\0b", "../own2"]
)
def test_guests_read_and_write_nothing_else_with_any_grant(own: Path, target: str) -> None:
    for kind in ("read", "write"):
        assert isinstance(judge(own, ProposedAction("read" if kind == "read" else "write", target)), Deny)


def test_a_link_that_leads_to_others_is_not_followed(own: Path) -> None:
    (own / "link").symlink_to(own.parent / "others")
    assert isinstance(judge(own, ProposedAction("read", "link/notes.txt")), Deny)


def test_tools_of_the_owner_are_refused_even_where_all_is_allowed(own: Path) -> None:
    assert isinstance(judge(own, ProposedAction("command", "true"), tool="terminal"), Deny)
    assert isinstance(judge(own, ProposedAction("other", "anything"), tool="notes_read"), Deny)


def test_the_owner_is_not_confined(own: Path) -> None:
    policy = ApprovalPolicy(home=own.parent, mode="off")
    assert policy.judge("terminal", Effect.READS, ProposedAction("read", "/etc/passwd"), Folder(own)) == Allow()
