"""The contract suite for chat networks with local-slack, a third-party workspace, as far as it supports it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.platforms.slack.local_far_side import LocalFarSide, local_far_side

from talaria.testing.local_slack import MISSING, LocalSlack, find_local_slack
from talaria.testing.platform_suite import ChatsSuite, FilesSuite, ReactionsSuite, ReceivingSuite, SendingSuite

UNSUPPORTED = {
    "test_reply_appears_in_the_chat_of_the_question": "it drops the metadata of messages",
    "test_unconfirmed_message_is_delivered_again": "it delivers everything once, acknowledged or not",
    "test_message_sent_while_disconnected_is_received_later": "it stores nothing for a disconnected app",
    "test_received_file_is_saved_under_a_safe_name": "its people send files in their own way",
}

if find_local_slack() is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def workspace() -> Iterator[LocalSlack]:
    with LocalSlack() as there:
        yield there


class TestLocalSlack(ReceivingSuite, ChatsSuite, SendingSuite, ReactionsSuite, FilesSuite):
    @pytest.fixture
    async def far_side(self, workspace: LocalSlack, request: pytest.FixtureRequest) -> AsyncIterator[LocalFarSide]:
        if reason := UNSUPPORTED.get(request.function.__name__):
            pytest.skip(f"local-slack doesn't support this: {reason}")
        async with local_far_side(workspace) as there:
            yield there
