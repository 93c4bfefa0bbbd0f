"""Modules that tables name as text: type checkers do not see these imports, so each is tried here."""

import pytest

from talaria.app.command_line.dispatch import load_subcommand
from talaria.app.command_line.subcommands import SUBCOMMANDS, Subcommand
from talaria.contracts.setup import NetworkSetup
from talaria.core.lazy import load_module
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS


@pytest.mark.parametrize("subcommand", SUBCOMMANDS, ids=lambda subcommand: subcommand.name)
def test_every_subcommand_has_its_module(subcommand: Subcommand) -> None:
    loaded = load_subcommand(subcommand)
    assert callable(loaded.add_arguments)
    assert callable(loaded.run)


@pytest.mark.parametrize("name", BUILT_IN_PLATFORMS)
def test_every_platform_has_its_modules(name: str) -> None:
    assert callable(load_module(f"talaria.platforms.{name}.adapter").open_platform)
    assert isinstance(load_module(f"talaria.platforms.{name}.setup").SETUP, NetworkSetup)
