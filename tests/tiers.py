"""Test tiers, decided by what a test module uses: ``--quick`` leaves out processes, servers and vendors' clients.

A module belongs to the slow tier if it, or a module of ``tests`` or ``talaria.testing`` that it imports, starts
programs or imports a client library. A single test of another module is marked ``slow`` if the code under test starts
programs, or if it takes more than 0.3 s of CPU time or waits for seconds. While a test of a quick run is running,
starting a program raises `RuntimeError`, so that a test cannot be in the wrong tier unnoticed.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SLOW_FOLDERS = ("tests/system", "tests/house")
# Importing one of these means child processes, real servers, or a library that takes long to import.
SLOW_IMPORTS = {
    "subprocess", "multiprocessing", "pty", "aiogram", "anthropic", "discord", "fpdf", "mcp", "microsoft_agents", "nio",
    "openai", "playwright", "schemathesis", "slack_sdk", "talaria.tools.browser", "talaria.tools.mcp", "telegram",
}  # fmt: skip
SLOW_CALLS = {"create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn"}
_SLOW_CALL = re.compile(rf"\.({'|'.join(sorted(SLOW_CALLS))})\b")
_IMPORT = re.compile(r"^ *(?:from +([\w.]+) +import +(\([^)]*\)|[^\n(]+)|import +([^\n]+))", re.MULTILINE)
# Tests of `talaria.testing.platform_suite` that wait until an adapter times out.
WAITING_TESTS = {"test_a_silent_network_is_reported_in_time", "test_dead_connection_is_reported_as_unreachable"}
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec"}


def is_slow(path: Path) -> bool:
    """Return whether a test file is left out of a quick run."""
    if path.relative_to(ROOT).as_posix().startswith(SLOW_FOLDERS):
        return True
    pending, seen = [path], set()
    while pending:
        file = pending.pop()
        if file not in seen:
            seen.add(file)
            uses_processes, imported = _read_uses(file)
            if uses_processes:
                return True
            pending += imported
    return False


@cache
def _read_uses(path: Path) -> tuple[bool, list[Path]]:
    """Return whether a file itself starts processes or imports a client, and the test code it imports.

    The text is searched, because parsing every file would take a third of the time of a collection.
    """
    text = path.read_text()
    names = set(_imports(text))
    is_used = _SLOW_CALL.search(text) is not None or any(
        name == slow or name.startswith(f"{slow}.") for name in names for slow in SLOW_IMPORTS
    )
    files = [_find_file(name) for name in names if name.startswith(("tests.", "talaria.testing."))]
    return is_used, [file for file in files if file.is_file()]


def _find_file(module: str) -> Path:
    """Return the file of a module of ``tests`` or ``talaria.testing``."""
    folder = ROOT / "src" if module.startswith("talaria.") else ROOT
    return folder / f"{module.replace('.', '/')}.py"


def _imports(text: str) -> Iterator[str]:
    """Yield the modules that a file imports, and names that it imports from packages, which may be modules too."""
    for source, names, modules in _IMPORT.findall(text):
        yield from (name.split()[0] for name in modules.split(",") if name.strip())
        if source:
            yield source
            yield from (f"{source}.{name}" for name in re.findall(r"[\w]+", names))


def is_slow_test(item: pytest.Item) -> bool:
    """Return whether a test of a quick module is left out of a quick run."""
    return item.get_closest_marker("slow") is not None or item.name.partition("[")[0] in WAITING_TESTS


class ProcessBan:
    """Refuse to start programs while ``is_on``; the audit hook stays for the life of the process."""

    def __init__(self) -> None:
        self.is_on = False
        sys.addaudithook(self._refuse)

    def _refuse(self, event: str, _: tuple[object, ...]) -> None:
        if self.is_on and event in STARTS:
            raise RuntimeError(f"{event}: a test of the quick tier must not start programs (see tests/tiers.py)")
