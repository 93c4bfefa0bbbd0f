"""Checkpoints of a workspace: one suite for Git and for dulwich."""

import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from tests.tools.checkpoints.workspaces import Workspace

from talaria.contracts.checkpoints import CheckpointFailed, EditedSince
from talaria.core.errors import NotFound


@pytest.fixture(params=["git", "dulwich"])
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Workspace:
    return Workspace(tmp_path, request.param)


def restore(workspace: Workspace, name: str = "1", *, overwrite: bool = False, keep: tuple[str, ...] = ()) -> None:
    history = workspace.history
    history.restore(history.find(name), overwrite=overwrite, keep=keep)


def test_restore_undoes_changed_created_and_deleted_files(workspace: Workspace) -> None:
    workspace.write("changed.txt", "before\n")
    workspace.write("deleted.txt", "still needed\n")
    before = workspace.tree()
    workspace.turn(changed__txt="after\n", created__txt="new\n", deleted__txt=None)
    restore(workspace)
    assert workspace.tree() == before


def test_each_turn_has_one_checkpoint_numbered_from_the_newest(workspace: Workspace) -> None:
    workspace.turn("first", a="1")
    workspace.turn("second", a="2")
    assert [(one.number, one.label) for one in workspace.history.list()] == [(1, "second"), (2, "first")]
    restore(workspace, "2")
    assert workspace.tree() == {}


def test_later_calls_of_a_turn_add_no_checkpoint(workspace: Workspace) -> None:
    history = workspace.history
    for text in ("1", "2"):
        history.record_before("edit", "session", "turn")
        workspace.write("a", text)
        history.record_after("turn")
    assert len(history.list()) == 1


def test_checkpoint_of_a_turn_without_changes_is_replaced_by_the_next(workspace: Workspace) -> None:
    workspace.turn("look around")
    workspace.turn("change it", a="1")
    assert [one.label for one in workspace.history.list()] == ["change it"]


def test_restore_can_be_undone(workspace: Workspace) -> None:
    workspace.write("a", "before")
    workspace.turn(a="after")
    restore(workspace)
    assert workspace.tree() == {"a": "before"}
    restore(workspace, "1")
    assert workspace.tree() == {"a": "after"}


def test_restore_with_manual_edits_is_refused_and_names_them(workspace: Workspace) -> None:
    workspace.write("both", "start")
    workspace.turn(both="agent", own="agent")
    workspace.write("both", "hand")
    workspace.write("notes", "hand")
    with pytest.raises(EditedSince) as refused:
        restore(workspace)
    assert refused.value.paths == ("both", "notes")
    assert workspace.tree() == {"both": "hand", "own": "agent", "notes": "hand"}


def test_restore_can_preserve_manual_edits(workspace: Workspace) -> None:
    workspace.turn(own="agent")
    workspace.write("notes", "hand")
    restore(workspace, keep=("notes",))
    assert workspace.tree() == {"notes": "hand"}


def test_overwritten_manual_edits_can_be_restored(workspace: Workspace) -> None:
    workspace.turn(own="agent")
    workspace.write("notes", "hand")
    restore(workspace, overwrite=True)
    assert workspace.tree() == {}
    restore(workspace, "1")
    assert workspace.tree() == {"own": "agent", "notes": "hand"}


def test_manual_edits_between_calls_of_one_turn_are_detected(workspace: Workspace) -> None:
    history = workspace.history
    history.record_before("edit", "session", "turn")
    workspace.write("a", "agent")
    history.record_after("turn")
    workspace.write("notes", "hand")
    history.record_before("edit", "session", "turn")
    workspace.write("b", "agent")
    history.record_after("turn")
    assert history.plan(history.find("1")).edited == ("notes",)


def test_manual_edits_between_turns_are_detected(workspace: Workspace) -> None:
    workspace.turn(a="1")
    workspace.write("notes", "hand")
    workspace.turn(a="2")
    history = workspace.history
    assert history.plan(history.find("2")).edited == ("notes",)
    assert history.plan(history.find("1")).edited == ()


def test_ignored_and_large_files_are_not_restored(tmp_path: Path, workspace: Workspace) -> None:
    workspace = Workspace(tmp_path, workspace.options.engine, max_file_bytes=1000)
    workspace.write(".gitignore", "*.log\nbuild/\n")
    workspace.write("build/out", "built")
    workspace.write("run.log", "1")
    workspace.write("video", "x" * 2000)
    workspace.turn(a="agent", **{"run__log": "2", "video": "y" * 3000, "build/out": "rebuilt"})
    assert workspace.history.list()[0].skipped == ("video",)
    restore(workspace)
    tree = workspace.tree()
    assert (tree["run.log"], tree["build/out"], tree["video"]) == ("2", "rebuilt", "y" * 3000)
    assert "a" not in tree


def test_file_that_grew_too_large_is_not_restored(tmp_path: Path, workspace: Workspace) -> None:
    workspace = Workspace(tmp_path, workspace.options.engine, max_file_bytes=1000)
    workspace.write("data", "small")
    workspace.turn(data="x" * 2000)
    history = workspace.history
    assert history.plan(history.find("1")).unsaved == ("data",)
    assert history.restore(history.find("1")).kept == ("data",)
    assert workspace.tree() == {"data": "x" * 2000}


def test_file_ignored_at_the_checkpoint_is_not_removed(workspace: Workspace) -> None:
    workspace.write(".gitignore", "secret\n")
    workspace.write("secret", "token")
    workspace.turn(__gitignore="", a="agent")
    restore(workspace)
    assert workspace.tree() == {".gitignore": "secret\n", "secret": "token"}


def test_links_and_executable_files_are_restored(workspace: Workspace) -> None:
    script = workspace.write("run.sh", "#!/bin/sh\n")
    script.chmod(0o755)
    (workspace.folder / "link").symlink_to("run.sh")
    workspace.turn(run__sh=None, link=None)
    restore(workspace)
    assert os.access(script, os.X_OK)
    assert (workspace.folder / "link").readlink() == Path("run.sh")


def test_a_lost_executable_bit_is_restored(workspace: Workspace) -> None:
    script = workspace.write("run.sh", "#!/bin/sh\n")
    script.chmod(0o755)
    workspace.turn(other="x")
    script.chmod(0o644)
    restore(workspace, overwrite=True)
    assert script.stat().st_mode & 0o777 == 0o755


def test_link_out_of_the_workspace_is_not_followed(tmp_path: Path, workspace: Workspace) -> None:
    workspace.write("docs/page", "inside")
    workspace.turn(**{"docs/page": "changed"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace.folder / "docs/page").unlink()
    (workspace.folder / "docs").rmdir()
    (workspace.folder / "docs").symlink_to(outside)
    history = workspace.history
    history.restore(history.find("1"), overwrite=True)
    assert list(outside.iterdir()) == []


def test_files_with_non_utf8_names_are_restored(workspace: Workspace) -> None:
    name = os.fsdecode(b"caf\xe9 \n.txt")
    workspace.write(name, "before")
    workspace.turn(**{name: "after"})
    restore(workspace)
    assert (workspace.folder / name).read_text() == "before"


def test_file_and_folder_that_swapped_names_are_restored(workspace: Workspace) -> None:
    workspace.write("one", "file")
    workspace.write("two/inner", "in a folder")
    before = workspace.tree()
    history = workspace.history
    history.record_before("swap", "session", "turn")
    (workspace.folder / "one").unlink()
    (workspace.folder / "two/inner").unlink()
    (workspace.folder / "two").rmdir()
    workspace.write("one/inner", "x")
    workspace.write("two", "x")
    history.record_after("turn")
    restore(workspace)
    assert workspace.tree() == before


def test_contents_are_stored_byte_by_byte(workspace: Workspace) -> None:
    raw = b"\x00\xff one\r\ntwo\n\xfe$Id$"
    workspace.write(".gitattributes", "* text eol=lf ident\n")
    workspace.write("raw", raw)
    workspace.turn(raw="text")
    restore(workspace)
    assert (workspace.folder / "raw").read_bytes() == raw


def test_nested_repositories_are_separate_workspaces(workspace: Workspace) -> None:
    for repository in ("empty", "used"):
        subprocess.run(["git", "init", "-q", str(workspace.folder / repository)], check=True)
    workspace.write("used/file", "inner")
    workspace.turn(a="agent", **{"used/file": "changed"})
    restore(workspace)
    assert (workspace.folder / "used/file").read_text() == "changed"
    assert not (workspace.folder / "a").exists()
    assert workspace.checkpoints.open(workspace.folder / "used").root.name == "used"


def test_git_repository_of_the_workspace_is_not_changed(workspace: Workspace) -> None:
    subprocess.run(["git", "init", "-q", str(workspace.folder)], check=True)
    hook = workspace.write(".git/hooks/pre-commit", "#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    workspace.write(".git/info/exclude", "private\n")
    workspace.write("private", "1")
    git_folder = {name: text for name, text in workspace.tree().items() if name.startswith(".git/")}
    workspace.turn(a="agent", private="2")
    restore(workspace)
    tree = workspace.tree()
    assert {name: text for name, text in tree.items() if name.startswith(".git/")} == git_folder
    assert tree["private"] == "2"
    assert "a" not in tree


def test_diff_shows_changed_and_created_files(workspace: Workspace) -> None:
    workspace.write("a.txt", "one\ntwo\n")
    workspace.write("image", b"\0\1")
    workspace.turn(a__txt="one\n2\n", new__txt="hi\n", image="\0\2")
    history = workspace.history
    shown = {one.path: (one.change, one.diff) for one in history.diff(history.find("1"))}
    assert shown["image"] == ("changed", "")
    assert shown["new.txt"] == ("created", "@@ -0,0 +1 @@\n+hi")
    assert shown["a.txt"] == ("changed", "@@ -1,2 +1,2 @@\n one\n-two\n+2")


def test_checkpoints_are_found_by_the_start_of_their_id(workspace: Workspace) -> None:
    workspace.turn(a="1")
    history = workspace.history
    newest = history.list()[0]
    assert history.find(newest.id[:6]) == newest
    for name in ("2", "zzzz", ""):
        with pytest.raises(NotFound):
            history.find(name)


def test_old_checkpoints_are_removed(workspace: Workspace) -> None:
    workspace.keep(checkpoints=2)
    for number in range(4):
        workspace.turn(f"turn {number}", a=str(number))
    assert [one.label for one in workspace.history.list()] == ["turn 3", "turn 2"]
    restore(workspace, "2")
    assert workspace.tree() == {"a": "1"}


def test_prune_removes_expired_checkpoints_and_their_files(workspace: Workspace) -> None:
    workspace.turn(a="x" * 100_000)
    workspace.turn(a="y")
    assert workspace.checkpoints.prune() == 0
    workspace.keep(age=timedelta())
    assert workspace.checkpoints.prune() == 2
    assert workspace.checkpoints.workspaces() == []


def test_unchanged_tree_is_saved_completely_after_its_content_was_pruned(workspace: Workspace) -> None:
    workspace.turn(a="1")
    workspace.history.prune(everything=True)
    for damage in ("", "nonsense"):
        for stored in workspace.options.folder.rglob("last-tree"):
            stored.write_text(damage or stored.read_text())
        workspace.turn("again", b=damage)
        restore(workspace, "1")
        assert workspace.tree() == {"a": "1", **({"b": ""} if damage else {})}
        workspace.write("b", "")


@pytest.mark.parametrize("inside", ["", "parent"])
def test_home_folder_has_no_checkpoints(workspace: Workspace, inside: str) -> None:
    folder = workspace.home.parent if inside else workspace.home
    with pytest.raises(CheckpointFailed, match="home folder"):
        workspace.checkpoints.open(folder)


def test_workspace_with_too_many_files_is_refused(tmp_path: Path, workspace: Workspace) -> None:
    workspace = Workspace(tmp_path, workspace.options.engine, max_files=3)
    for number in range(4):
        workspace.write(str(number), "x")
    with pytest.raises(CheckpointFailed, match=r"checkpoints\.max_files"):
        workspace.turn(a="1")


def test_checkpoint_with_too_much_new_content_is_refused(tmp_path: Path, workspace: Workspace) -> None:
    workspace = Workspace(tmp_path, workspace.options.engine, max_new_bytes=1000)
    workspace.write("a", "x" * 2000)
    with pytest.raises(CheckpointFailed, match=r"checkpoints\.max_megabytes"):
        workspace.turn(a="1")


def test_both_engines_read_the_same_repository(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "git")
    workspace.write("a", "before")
    workspace.turn("with git", a="after")
    other = Workspace(tmp_path, "dulwich")
    assert [one.label for one in other.history.list()] == ["with git"]
    restore(other)
    assert other.tree() == {"a": "before"}
