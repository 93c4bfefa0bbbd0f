"""Modules that tables name as text: type checkers do not see these imports, so each is tried here."""

import pytest

from talaria.app.command_line.subcommands import SUBCOMMANDS
from talaria.app.platforms import BUILT_IN_PLATFORMS
from talaria.core.lazy import load_module


@pytest.mark.parametrize("name", [subcommand.module for subcommand in SUBCOMMANDS])
def test_every_subcommand_has_its_module(name: str) -> None:
    module = load_module(name)
    assert callable(module.add_arguments)
    assert callable(module.run)


@pytest.mark.parametrize("name", [known.module for known in BUILT_IN_PLATFORMS.values()])
def test_every_platform_has_its_module(name: str) -> None:
    assert callable(load_module(name).open_platform)
