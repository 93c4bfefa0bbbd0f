"""Test tiers, decided by what a test module uses: ``--quick`` leaves out processes, servers and vendors' clients.

A module belongs to the slow tier if it, or a module of ``tests`` that it imports, starts programs or imports a client
library. A single test of another module is marked ``slow`` if the code under test starts programs, or if it takes more
than 0.3 s of CPU time. While a test of a quick run is running, starting a program raises `RuntimeError`, so that a test
cannot be in the wrong tier unnoticed.
"""

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SLOW_FOLDERS = ("tests/system", "tests/house")
# Importing one of these means child processes, real servers, or a library that takes long to import.
SLOW_IMPORTS = {
    "subprocess", "multiprocessing", "pty", "aiogram", "anthropic", "discord", "mcp", "nio", "openai", "schemathesis",
    "slack_sdk", "talaria.testing.homeserver", "talaria.testing.local_slack", "talaria.testing.postgres",
    "talaria.testing.screen",
}  # fmt: skip
SLOW_CALLS = {"create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn"}
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec"}


def is_slow(path: Path) -> bool:
    """Return whether a test file is left out of a quick run."""
    name = path.relative_to(ROOT).as_posix()
    return name.startswith(SLOW_FOLDERS) or _uses_processes(path, frozenset())


@cache
def _uses_processes(path: Path, seen: frozenset[Path]) -> bool:
    tree = ast.parse(path.read_bytes())
    if any(isinstance(node, ast.Attribute) and node.attr in SLOW_CALLS for node in ast.walk(tree)):
        return True
    imported = _imports(tree)
    if any(name == slow or name.startswith(f"{slow}.") for name in imported for slow in SLOW_IMPORTS):
        return True
    neighbours = {ROOT / f"{name.replace('.', '/')}.py" for name in imported if name.startswith("tests.")}
    return any(
        _uses_processes(neighbour, seen | {path}) for neighbour in neighbours - seen - {path} if neighbour.is_file()
    )


def _imports(tree: ast.AST) -> set[str]:
    """Return the modules that a file imports, and what it imports from packages, which may be modules too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


class ProcessBan:
    """Makes attempts to start a program fail while ``is_on``; the hook behind it stays for the life of the process."""

    def __init__(self) -> None:
        self.is_on = False
        sys.addaudithook(self._refuse)

    def _refuse(self, event: str, _: tuple[object, ...]) -> None:
        if self.is_on and event in STARTS:
            raise RuntimeError(f"{event}: a test of the quick tier must not start programs (see tests/tiers.py)")
