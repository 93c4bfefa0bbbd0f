"""Guests: their own folder and their own tools; no grant and no mode gives them more."""

from pathlib import Path

import pytest
from tests.tools.tool_calls import FolderWorkspace

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
def test_guest_reads_and_writes_files_of_their_own_folders(own: Path, target: str, mode: Mode) -> None:
    assert judge(own, ProposedAction("read", target), mode=mode) == Allow()
    assert judge(own, ProposedAction("write", target), mode=mode, tool="write_file") == Allow()


@pytest.mark.parametrize(
    "target", ["..", "../others/notes.txt", "~", "~/others", "/etc/passwd", "~nobody-at-all/x", "a\0b", "../own2"]
)
def test_guest_cannot_read_or_write_other_files_even_with_a_grant(own: Path, target: str) -> None:
    for kind in ("read", "write"):
        assert isinstance(judge(own, ProposedAction("read" if kind == "read" else "write", target)), Deny)


def test_guest_cannot_follow_a_link_out_of_their_folder(own: Path) -> None:
    (own / "link").symlink_to(own.parent / "others")
    assert isinstance(judge(own, ProposedAction("read", "link/notes.txt")), Deny)


def test_guest_cannot_use_tools_of_the_owner_even_with_approvals_off(own: Path) -> None:
    assert isinstance(judge(own, ProposedAction("command", "true"), tool="terminal"), Deny)
    assert isinstance(judge(own, ProposedAction("other", "anything"), tool="notes_read"), Deny)


def test_owner_is_not_confined_to_a_folder(own: Path) -> None:
    policy = ApprovalPolicy(home=own.parent, mode="off")
    assert (
        policy.judge("terminal", Effect.READS, ProposedAction("read", "/etc/passwd"), FolderWorkspace(own)) == Allow()
    )
