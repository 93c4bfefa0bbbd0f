"""Modules that tables name as text: type checkers do not see these imports, so each is tried here."""

import pytest

from talaria.app.command_line.subcommands import SUBCOMMANDS
from talaria.contracts.setup import NetworkSetup
from talaria.core.lazy import load_module
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS


@pytest.mark.parametrize("name", [subcommand.module for subcommand in SUBCOMMANDS])
def test_every_subcommand_has_its_module(name: str) -> None:
    module = load_module(name)
    assert callable(module.add_arguments)
    assert callable(module.run)


@pytest.mark.parametrize("name", BUILT_IN_PLATFORMS)
def test_every_platform_has_its_modules(name: str) -> None:
    assert callable(load_module(f"talaria.platforms.{name}.adapter").open_platform)
    assert isinstance(load_module(f"talaria.platforms.{name}.setup").SETUP, NetworkSetup)
