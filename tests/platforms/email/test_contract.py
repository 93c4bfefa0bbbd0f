"""The contract suite on e-mail, with a real mail server."""

import pytest

from talaria.testing.platform_suite import PlatformSuite

pytestmark = [pytest.mark.one_engine, pytest.mark.slow]


class TestEmail(PlatformSuite, lacks={"servers", "reactions", "edits", "buttons", "groups", "typing", "idempotent"}):
    pass
