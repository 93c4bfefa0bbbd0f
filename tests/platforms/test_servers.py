"""Settings and adapters agree on which networks have servers."""

import pytest

from talaria.core.lazy import load_module
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS
from talaria.testing.far_side import SelectedTests

CONTRACT_TESTS = {"telegram": "tests.contracts.test_platforms"}


@pytest.mark.parametrize("network", BUILT_IN_PLATFORMS)
def test_settings_and_adapters_agree_on_networks_with_servers(network: str) -> None:
    module = load_module(CONTRACT_TESTS.get(network, f"tests.platforms.{network}.test_contract"))
    suites = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, SelectedTests)]
    tested = [one for one in suites if one.__name__.startswith("Test")]
    assert tested
    assert {"servers" not in one.lacks for one in tested} == {bool(BUILT_IN_PLATFORMS[network].server)}
