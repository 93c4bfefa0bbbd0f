"""The contract suite on a real IRC server."""

import pytest
from tests.platforms.irc.far_side import IrcFarSide

from talaria.testing.platform_suite import PlatformSuite

pytestmark = pytest.mark.one_engine


class TestIrc(
    PlatformSuite,
    lacks={
        *("backlog", "redelivery", "idempotent", "files", "reactions", "edits", "buttons", "threads", "typing"),
        *("slow_down", "failing", "revoked"),
    },
):
    @pytest.fixture
    def far_side(self, plain_side: IrcFarSide) -> IrcFarSide:
        return plain_side
