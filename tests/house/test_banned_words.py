"""Words that do not stand in this repository, and errors that nobody swallows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, all_files, files, name, nodes

# Where a failure of any kind must not go further: section 6 of the style.
CATCHES_EVERYTHING = {
    "src/talaria/agent/tool_dispatch.py",  # a bug in a tool ends the call, not the turn
    "src/talaria/agent/loop.py",  # a bug ends the turn, not the process
    "src/talaria/http/application.py",  # a bug ends the request, not the server
    "src/talaria/app/main.py",  # ends in a sentence for whoever typed the command
    "src/talaria/gateway/outbound/delivery.py",  # a bug in an adapter holds up one message, not the others
    "src/talaria/gateway/dispatcher.py",  # a conversation that cannot be opened waits, and no other with it
    "src/talaria/gateway/receiver.py",  # a network that fails is tried again, and no other with it
    "src/talaria/gateway/outbound/preview.py",  # what is shown while a turn runs never fails the turn
    "src/talaria/gateway/attachments.py",  # a bug in an adapter costs one file, not the turn
    "src/talaria/goals/follower.py",  # a judge that fails never stops the work that it judges
    "src/talaria/handoff/worker.py",  # the requester of a handoff learns of a bug too
    "src/talaria/core/aio.py",  # a bug in one conversation must not end the others
    "src/talaria/hooks/boot.py",  # BOOT.md that cannot be done must not end the gateway
    "src/talaria/hooks/dispatcher.py",  # an error of a hook refuses the call
    "src/talaria/hooks/hook_queue.py",  # whatever a hook of the owner does ends with the hook
    "src/talaria/schedule/scheduler.py",  # a job that brings out a bug must not end the gateway, again and again
    "src/talaria/runtime/agent_cache.py",  # what cannot be let go of must not end the conversations of others
    "src/talaria/runtime/turn_environment.py",  # a failing subscriber must not end the turn, nor the other subscribers
    "src/talaria/storage/worker_threads.py",  # goes to the one who asked for that piece of work
    "src/talaria/storage/database.py",  # the same, so that one bad piece of a group commit spares the others
}

NO_NOUNS = {"helper", "helpers", "util", "utils", "common", "manager", "managers", "misc"}
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
OWN_MACHINE = re.compile(r"(?<![\w.~$}>-])/(" + "|".join(("home", "root", "work")) + r")/\w")


def texts() -> Iterator[tuple[str, str]]:
    for path in all_files():
        if path.suffix != ".png":
            yield name(path), path.read_text(errors="replace")


def swallows_everything(node: ast.AST) -> bool:
    """Return whether this catches any exception at all and does not pass it on."""
    if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
        return False
    return node.type is None or bool({"Exception", "BaseException"} & set(re.findall(r"\w+", ast.unparse(node.type))))


def test_everything_is_caught_only_where_it_must_be() -> None:
    found = {name(path) for path in files("src", suffix=".py") if any(map(swallows_everything, nodes(path)))}
    assert found - CATCHES_EVERYTHING == set()


def test_nothing_is_left_for_later() -> None:
    ours = [(path, text) for path, text in texts() if "/static/vendor/" not in path]  # colours for such words
    assert [path for path, text in ours if UNFINISHED.search(text)] == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert [path for path, text in texts() if OWN_MACHINE.search(text) or f"{ROOT}/" in text] == []


def test_modules_are_named_after_nouns_of_ours() -> None:
    modules = {name(path): path.stem for path in files("src", suffix=".py")}
    assert [path for path, stem in modules.items() if stem in NO_NOUNS or stem.endswith("_mixin")] == []


def test_every_module_opens_with_a_sentence() -> None:
    openings = {name(path): _docstring(path) for path in files("src", suffix=".py")}
    assert [path for path, text in openings.items() if not text.partition("\n")[0].endswith((".", ":"))] == []


def _docstring(path: Path) -> str:
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return ast.get_docstring(module) or ""
