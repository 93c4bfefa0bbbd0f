"""`talaria dev`: tools for people who extend Talaria."""

import argparse
import re
from importlib.resources import files
from pathlib import Path

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import Refused

_EPILOG = """\
`new-platform` writes a package with an adapter for a chat network that works: a
chat of lines over TCP under your name, its setup, a strict server for its tests,
and the contract tests, which pass. Replace its protocol by that of your network.
"""
_NAME = re.compile(r"[a-z][a-z0-9]{1,30}")
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "talaria-{name}"
version = "0.1.0"
description = "{title} for Talaria"
requires-python = ">=3.11"
dependencies = ["talaria-agent"]

[project.optional-dependencies]
test = ["pytest", "pytest-asyncio"]

[project.entry-points."talaria.platforms"]
{name} = "talaria_{name}.adapter:open_platform"

[project.entry-points."talaria.platform_setups"]
{name} = "talaria_{name}.setup:SETUP"

[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
testpaths = ["tests"]
pythonpath = [".", "tests"]
"""
_TEST = """\
\"\"\"The contract suite on {title}.\"\"\"

from collections.abc import AsyncIterator

import pytest
from server import {title}FarSide, {name}_far_side

from talaria.testing.platform_suite import PlatformSuite


class Test{title}(
    PlatformSuite,
    lacks={{"files", "reactions", "edits", "buttons", "groups", "threads", "servers", "typing", "redelivery"}},
):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[{title}FarSide]:
        async with {name}_far_side() as there:
            yield there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    new = actions.add_parser("new-platform", help="write a package for a new chat network")
    new.add_argument("name", metavar="NAME", help="name of the network: lower-case letters and digits")
    folder = new.add_argument("--folder", metavar="FOLDER", help="where to write it, talaria-NAME by default")
    add_completion(folder, "files")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Write the package and report the next steps; without an action, describe it."""
    if arguments.action is None:
        services.terminal.line(f"{_EPILOG}Run `talaria dev new-platform NAME`.")
        return 0
    name = arguments.name
    if not _NAME.fullmatch(name):
        raise Refused(f"`{name}` can't be the name of a network: use lower-case letters and digits.")
    folder = Path(arguments.folder or f"talaria-{name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists and isn't empty. Choose another one with --folder.")
    for path, text in make_platform_package(name).items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(f"Can't write {file}: {error.strerror}.") from error
        services.terminal.line(str(file))
    services.terminal.line(f"Next: cd {folder}, pip install -e '.[test]', pytest. Then replace the protocol.")
    return 0


def make_platform_package(name: str) -> dict[str, str]:
    """Return the files of a package for a network, by their paths."""
    title = name.capitalize()
    example = files("talaria") / "testing" / "linechat"  # read, not imported: it is an example

    def copy(file: str) -> str:
        text = (example / file).read_text(encoding="utf-8")
        text = text.replace("talaria.testing.linechat", f"talaria_{name}")
        return text.replace("LineChat", title).replace("LINECHAT", name.upper()).replace("linechat", name)

    return {
        "pyproject.toml": _PROJECT.format(name=name, title=title),
        f"talaria_{name}/__init__.py": f'"""{title} for Talaria."""\n',
        f"talaria_{name}/adapter.py": copy("adapter.py"),
        f"talaria_{name}/setup.py": copy("setup.py"),
        "tests/server.py": copy("server.py"),
        "tests/test_contract.py": _TEST.format(name=name, title=title),
    }
