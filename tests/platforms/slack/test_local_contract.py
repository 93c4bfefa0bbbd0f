"""The contract suite for chat networks in the workspace of somebody else, as far as that goes."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.platforms.slack.local_far_side import LocalFarSide, local_far_side

from talaria.testing.local_slack import MISSING, LocalSlack, find_local_slack
from talaria.testing.platform_suite import ChatsSuite, FilesSuite, ReactionsSuite, ReceivingSuite, SendingSuite

UNFIT = {
    "test_an_answer_is_seen_where_it_was_asked": "it drops the metadata of messages",
    "test_what_was_not_confirmed_comes_again": "it tells everything once, acknowledged or not",
    "test_what_is_written_while_nobody_listens_arrives_later": "it keeps nothing for an app that is away",
    "test_a_file_is_kept_under_a_safe_name": "its people send files in a way of its own",
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
        if reason := UNFIT.get(request.function.__name__):
            pytest.skip(f"local-slack is not good enough for this: {reason}")
        async with local_far_side(workspace) as there:
            yield there
