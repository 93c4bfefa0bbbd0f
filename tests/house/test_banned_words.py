"""Words that must not be in this repository, and handlers that must not catch every exception."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, all_files, files, name, nodes

# Modules that may catch every exception, and why: section 6 of the style.
CATCHES_EVERYTHING = {
    "src/talaria/agent/tool_dispatch.py",  # a bug in a tool ends the call, not the turn
    "src/talaria/agent/loop.py",  # a bug ends the turn, not the process
    "src/talaria/http/application.py",  # a bug ends the request, not the server
    "src/talaria/app/main.py",  # a bug ends in a sentence for the person who typed the command
    "src/talaria/gateway/outbound/delivery.py",  # a bug in an adapter delays one message, not the others
    "src/talaria/gateway/dispatcher.py",  # a session that cannot be opened must not block others
    "src/talaria/gateway/receiver.py",  # a failed network is retried without affecting others
    "src/talaria/gateway/outbound/preview.py",  # an error in a preview must not fail the turn
    "src/talaria/gateway/attachments.py",  # a bug in an adapter fails one file, not the turn
    "src/talaria/goals/follower.py",  # a failed judge must not stop the goal
    "src/talaria/handoff/worker.py",  # a bug is reported to the requester of the handoff
    "src/talaria/core/aio.py",  # a bug in one session must not end the others
    "src/talaria/hooks/boot.py",  # a failed BOOT.md must not end the gateway
    "src/talaria/hooks/dispatcher.py",  # an error of a hook refuses the call
    "src/talaria/hooks/hook_queue.py",  # an error of a hook must not affect anything else
    "src/talaria/schedule/scheduler.py",  # a job that triggers a bug must not end the gateway on every run
    "src/talaria/runtime/agent_cache.py",  # an agent that cannot be released must not end other sessions
    "src/talaria/runtime/turn_environment.py",  # a failing subscriber must not end the turn, nor the other subscribers
    "src/talaria/storage/worker_threads.py",  # the exception is passed to the caller of the work
    "src/talaria/storage/database.py",  # the same, so that one failed write of a group commit does not fail the others
}

NO_NOUNS = {"helper", "helpers", "util", "utils", "common", "manager", "managers", "misc"}
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
OWN_MACHINE = re.compile(r"(?<![\w.~$}>-])/(" + "|".join(("home", "root", "work")) + r")/\w")


def texts() -> Iterator[tuple[str, str]]:
    for path in all_files():
        if path.suffix != ".png":
            yield name(path), path.read_text(errors="replace")


def swallows_everything(node: ast.AST) -> bool:
    """Return whether a handler catches every exception and does not raise it again."""
    if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
        return False
    return node.type is None or bool({"Exception", "BaseException"} & set(re.findall(r"\w+", ast.unparse(node.type))))


def test_only_listed_modules_catch_every_exception() -> None:
    found = {name(path) for path in files("src", suffix=".py") if any(map(swallows_everything, nodes(path)))}
    assert found - CATCHES_EVERYTHING == set()


def test_no_file_has_unfinished_work_markers() -> None:
    ours = [(path, text) for path, text in texts() if "/static/vendor/" not in path]  # highlighting of such words
    assert [path for path, text in ours if UNFINISHED.search(text)] == []


def test_no_file_contains_paths_of_the_development_machine() -> None:
    assert [path for path, text in texts() if OWN_MACHINE.search(text) or f"{ROOT}/" in text] == []


def test_no_module_has_a_generic_name() -> None:
    modules = {name(path): path.stem for path in files("src", suffix=".py")}
    assert [path for path, stem in modules.items() if stem in NO_NOUNS or stem.endswith("_mixin")] == []


def test_every_module_docstring_starts_with_a_sentence() -> None:
    openings = {name(path): _docstring(path) for path in files("src", suffix=".py")}
    assert [path for path, text in openings.items() if not text.partition("\n")[0].endswith((".", ":"))] == []


def _docstring(path: Path) -> str:
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return ast.get_docstring(module) or ""
