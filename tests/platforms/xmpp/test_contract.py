"""The contract suite on a real Prosody."""

import pytest

from talaria.testing.platform_suite import PlatformSuite

pytestmark = [pytest.mark.one_engine, pytest.mark.slow]


class TestXmpp(PlatformSuite, lacks={"buttons", "threads", "slow_down", "failing"}):
    """All tests of the contract."""
