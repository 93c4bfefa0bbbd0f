"""The example adapter of the how-to page, run through the contract suite; the page must quote it exactly."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.house.tree import ROOT

from talaria.contracts.platform import PlatformAccount
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.testing.linechat.adapter import LineChat, open_platform
from talaria.testing.linechat.server import LineChatFarSide, linechat_far_side
from talaria.testing.linechat.setup import SETUP
from talaria.testing.platform_suite import PlatformSuite

PAGE = ROOT / "docs" / "how-to" / "add-a-platform.md"


class TestLineChat(
    PlatformSuite,
    lacks={"files", "reactions", "edits", "buttons", "groups", "threads", "servers", "typing", "redelivery"},
):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[LineChatFarSide]:
        async with linechat_far_side() as there:
            yield there


@pytest.mark.parametrize(
    ("token", "options", "valid"),
    [
        ("t", {"host": "127.0.0.1", "port": "7000"}, True),
        (None, {"host": "127.0.0.1", "port": "7000"}, False),
        ("t", {"host": "127.0.0.1"}, False),
        ("t", {"host": "127.0.0.1", "port": "many"}, False),
        ("t", {"host": "127.0.0.1", "prot": "7000"}, False),
    ],
)
async def test_adapter_is_opened_from_valid_settings_only(
    store: Store, tmp_path: Path, token: str | None, options: dict[str, str], valid: bool
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
        if valid:
            assert isinstance(open_platform(account), LineChat)
        else:
            with pytest.raises(Refused, match="linechat"):
                open_platform(account)


async def test_setup_logs_in_with_the_answers() -> None:
    _, port, token = SETUP.questions
    assert token.check is not None
    assert port.problem is not None
    assert (port.problem("7000"), port.problem("many")) == ("", "A port is a number from 1 to 65535.")
    async with linechat_far_side() as there:
        options = {"port": str(there.port)}
        right = await token.check(NetworkTrial({"LINECHAT_TOKEN": there.secret}, options))
        wrong = await token.check(NetworkTrial({"LINECHAT_TOKEN": "wrong"}, options))
    gone = await token.check(NetworkTrial({"LINECHAT_TOKEN": there.secret}, options))
    assert [right.outcome, wrong.outcome, gone.outcome] == ["right", "refused", "unreachable"]


def test_how_to_page_quotes_the_current_adapter_and_tests() -> None:
    blocks = dict(re.findall(r"^```(python|py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert blocks["python"] == (ROOT / "src/talaria/testing/linechat/adapter.py").read_text()
    assert blocks["py"] in Path(__file__).read_text()
