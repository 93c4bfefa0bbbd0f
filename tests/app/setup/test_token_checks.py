from collections.abc import AsyncIterator

import pytest
from tests.app.setup.network_servers import TOKEN, networks

from talaria.app.setup.token_checks import NETWORKS, check_token
from talaria.contracts.setup import NetworkName

ALL: tuple[NetworkName, ...] = ("telegram", "discord", "slack", "slack_app", "matrix")


@pytest.fixture
async def base() -> AsyncIterator[str]:
    async with networks() as url:
        yield url


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("telegram", "Telegram accepted the token: @winged_bot."),
        ("discord", "Discord accepted the token: winged."),
        ("slack", "Slack accepted the token: winged in Acme."),
        ("slack_app", "Slack accepted the token."),
        ("matrix", "Matrix accepted the token: @winged:example.org."),
    ],
)
async def test_a_right_token_brings_its_owner(base: str, network: NetworkName, sentence: str) -> None:
    tried = await check_token(network, TOKEN, base_url=f"{base}/")
    assert (tried.outcome, tried.sentence, tried.right) == ("right", sentence, True)


@pytest.mark.parametrize("network", ALL)
@pytest.mark.parametrize("token", ["123:wrong-secret-one", "wrong", "two words", "line\nbreak", "ключ"])
async def test_a_wrong_token_is_refused_and_not_repeated(base: str, network: NetworkName, token: str) -> None:
    tried = await check_token(network, token, base_url=base)
    assert tried.outcome == "refused"
    assert tried.sentence.endswith(NETWORKS[network].remedy)
    assert "secret" not in tried.sentence


@pytest.mark.parametrize("network", ALL)
async def test_an_unreachable_network_is_distinguished_from_a_wrong_token(network: NetworkName) -> None:
    tried = await check_token(network, TOKEN, base_url="http://127.0.0.1:9")
    assert tried.outcome == "unreachable"
    assert "at http://127.0.0.1:9. Check the network" in tried.sentence
    assert TOKEN not in tried.sentence


@pytest.mark.parametrize("network", ALL)
async def test_a_network_that_says_nothing_is_not_waited_for(base: str, network: NetworkName) -> None:
    tried = await check_token(network, TOKEN, base_url=f"{base}/silent", seconds=0.2)
    assert tried.outcome == "late"
    assert "didn't answer within 0.2 s" in tried.sentence


@pytest.mark.parametrize("network", ALL)
@pytest.mark.parametrize("place", ["page", "elsewhere"])
async def test_an_answer_of_another_service_is_rejected(base: str, network: NetworkName, place: str) -> None:
    tried = await check_token(network, TOKEN, base_url=f"{base}/{place}")
    assert tried.outcome == "odd"
    assert "doesn't respond like" in tried.sentence


@pytest.mark.parametrize("network", ALL)
async def test_a_network_in_trouble_says_nothing_about_the_token(base: str, network: NetworkName) -> None:
    tried = await check_token(network, TOKEN, base_url=f"{base}/trouble")
    assert (tried.outcome, "is having problems (HTTP 502). Try again" in tried.sentence) == ("odd", True)


async def test_an_address_that_is_none_is_a_sentence() -> None:
    assert (await check_token("matrix", TOKEN, base_url="http://")).outcome == "unreachable"


async def test_a_token_of_matrix_goes_to_its_own_server_alone() -> None:
    assert NETWORKS["matrix"].base_url == ""
    tried = await check_token("matrix", TOKEN)
    assert (tried.outcome, "belongs to a server" in tried.sentence) == ("odd", True)
