"""The example of how to add a platform, run through the contract suite; and the page, which has to quote it."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.house.tree import ROOT
from tests.platforms.linechat.linechat import LineChat, open_platform
from tests.platforms.linechat.server import LineFarSide, line_far_side

from talaria.contracts.platform import PlatformAccount
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.testing.platform_suite import PlatformSuite

PAGE = ROOT / "docs" / "how-to" / "add-a-platform.md"


class TestLineChat(
    PlatformSuite, lacks={"files", "reactions", "edits", "buttons", "groups", "threads", "typing", "redelivery"}
):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[LineFarSide]:
        async with line_far_side() as there:
            yield there


@pytest.mark.parametrize(
    ("token", "options", "sensible"),
    [
        ("t", {"host": "127.0.0.1", "port": "7000"}, True),
        (None, {"host": "127.0.0.1", "port": "7000"}, False),
        ("t", {"host": "127.0.0.1"}, False),
        ("t", {"host": "127.0.0.1", "port": "many"}, False),
        ("t", {"host": "127.0.0.1", "prot": "7000"}, False),
    ],
)
async def test_it_is_opened_from_the_settings_of_a_profile(
    store: Store, tmp_path: Path, token: str | None, options: dict[str, str], sensible: bool
) -> None:
    async with AsyncExitStack() as closing:
        account = PlatformAccount(
            name="linechat",
            options=options,
            secret={"LINECHAT_TOKEN": token}.get,
            store=store,
            folder=tmp_path,
            closing=closing,
        )
        if sensible:
            assert isinstance(open_platform(account), LineChat)
        else:
            with pytest.raises(Refused, match="linechat"):
                open_platform(account)


def test_the_page_shows_the_adapter_and_its_tests_as_they_are() -> None:
    blocks = dict(re.findall(r"^```(python|py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    folder = Path(__file__).parent
    assert blocks["python"] == (folder / "linechat.py").read_text()
    assert blocks["py"] in Path(__file__).read_text()
