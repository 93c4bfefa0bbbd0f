"""Checks of credentials: each built-in network's own request and its answers, good and bad."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.app.setup.network_servers import TOKEN, networks

from talaria.app.platforms import load_network_setups
from talaria.contracts.setup import NetworkTrial, ProbeResult
from talaria.platforms.setup_checks import TokenCheck
from talaria.settings.secrets import list_secret_names
from talaria.testing.ntfy_server import ntfy_server

CHECKS = {
    question.name: question.check
    for name, setup in load_network_setups().items()
    for question in setup.questions
    if isinstance(question.check, TokenCheck) and name in {"telegram", "discord", "slack", "matrix"}
}


@pytest.fixture
async def base() -> AsyncIterator[str]:
    async with networks() as url:
        yield url


async def check_token(secret: str, token: str, base_url: str = "", seconds: float = 30.0) -> ProbeResult:
    check = msgspec.structs.replace(CHECKS[secret], seconds=seconds)
    return await check(NetworkTrial({secret: token}, base_url=base_url))


def test_every_secret_that_is_asked_for_is_registered() -> None:
    asked = {one.name for setup in load_network_setups().values() for one in setup.questions if one.is_secret}
    assert asked <= set(list_secret_names())


def test_every_network_says_what_to_do_next_and_explains_each_question() -> None:
    for setup in load_network_setups().values():
        assert setup.next_step.endswith(".")
        for question in setup.questions:
            assert question.hint.endswith(".")


def test_problems_of_a_named_account_name_its_own_section() -> None:
    trial = NetworkTrial({"IRC_SERVER": "irc.example.org"}, {"public_url": "https://", "patience": "x"}, account="work")
    found = {name: setup.doctor(trial) for name, setup in load_network_setups().items() if setup.doctor}
    assert len(found) > 10
    for name, problems in found.items():
        assert "platforms.work" in problems[0], name


def test_problems_of_an_answer_name_no_section_because_the_account_may_be_another() -> None:
    questions = [one for setup in load_network_setups().values() for one in setup.questions if one.problem]
    problems = [one.problem("no answer: ☹") for one in questions if one.problem]
    assert "A port is a number from 1 to 65535." in problems
    assert not [problem for problem in problems if "platforms." in problem]


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        ("TELEGRAM_BOT_TOKEN", "Telegram accepted the token: @winged_bot."),
        ("DISCORD_BOT_TOKEN", "Discord accepted the token: winged."),
        ("SLACK_BOT_TOKEN", "Slack accepted the token: winged in Acme."),
        ("SLACK_APP_TOKEN", "Slack accepted the token."),
        ("MATRIX_ACCESS_TOKEN", "Matrix accepted the token: @winged:example.org."),
    ],
)
async def test_a_right_token_brings_its_owner(base: str, secret: str, sentence: str) -> None:
    tried = await check_token(secret, TOKEN, f"{base}/")
    assert (tried.outcome, tried.sentence, tried.right) == ("right", sentence, True)


@pytest.mark.parametrize("secret", CHECKS)
@pytest.mark.parametrize("token", ["123:wrong-secret-one", "wrong", "two words", "line\nbreak", "ключ"])
async def test_a_wrong_token_is_refused_and_not_repeated(base: str, secret: str, token: str) -> None:
    tried = await check_token(secret, token, base)
    assert tried.outcome == "refused"
    assert tried.sentence.endswith(CHECKS[secret].remedy)
    assert "secret" not in tried.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_an_unreachable_network_is_distinguished_from_a_wrong_token(secret: str) -> None:
    tried = await check_token(secret, TOKEN, "http://127.0.0.1:9")
    assert tried.outcome == "unreachable"
    assert "at http://127.0.0.1:9. Check the network" in tried.sentence
    assert TOKEN not in tried.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_a_network_that_says_nothing_is_not_waited_for(base: str, secret: str) -> None:
    tried = await check_token(secret, TOKEN, f"{base}/silent", seconds=0.2)
    assert tried.outcome == "late"
    assert "didn't answer within 0.2 s" in tried.sentence


@pytest.mark.parametrize("secret", CHECKS)
@pytest.mark.parametrize("place", ["page", "elsewhere"])
async def test_an_answer_of_another_service_is_rejected(base: str, secret: str, place: str) -> None:
    tried = await check_token(secret, TOKEN, f"{base}/{place}")
    assert tried.outcome == "odd"
    assert "doesn't respond like" in tried.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_a_network_in_trouble_says_nothing_about_the_token(base: str, secret: str) -> None:
    tried = await check_token(secret, TOKEN, f"{base}/trouble")
    assert (tried.outcome, "is having problems (HTTP 502). Try again" in tried.sentence) == ("odd", True)


async def test_an_address_that_is_none_is_a_sentence() -> None:
    assert (await check_token("MATRIX_ACCESS_TOKEN", TOKEN, "http://")).outcome == "unreachable"


async def test_a_token_of_matrix_goes_to_its_own_server_alone() -> None:
    tried = await check_token("MATRIX_ACCESS_TOKEN", TOKEN)
    assert (tried.outcome, "belongs to a server" in tried.sentence) == ("odd", True)


async def test_ntfy_is_asked_for_its_topic_and_its_token() -> None:
    topic, token = (one for one in load_network_setups()["ntfy"].questions if one.check)
    assert topic.check is not None
    assert token.check is not None
    async with ntfy_server("tk_right", frozenset({"attic"})) as server:

        def trial(**secrets: str) -> NetworkTrial:
            return NetworkTrial({"NTFY_TOPIC": "attic", **secrets}, {"server": server.url})

        assert (await topic.check(trial())).sentence == "The topic is protected, so it needs a token."
        assert (await topic.check(trial(NTFY_TOKEN="tk_right"))).sentence == "ntfy accepted the topic."
        assert (await token.check(trial(NTFY_TOKEN="tk_right"))).right
        refused = await token.check(trial(NTFY_TOKEN="tk_wrong"))
        assert (refused.outcome, "tk_wrong" in refused.sentence) == ("refused", False)
    assert (await topic.check(trial())).outcome == "unreachable"
    assert topic.problem is not None
    assert "is no ntfy topic" in topic.problem("two words")


def test_a_package_can_declare_the_setup_of_its_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = "from talaria.contracts.setup import NetworkSetup\nSETUP = NetworkSetup(title='Pager')\n"
    (tmp_path / "pager_setup.py").write_text(declared)
    (tmp_path / "pager-1.0.dist-info").mkdir()
    points = "[talaria.platform_setups]\npager = pager_setup:SETUP\nbroken = pager_setup:MISSING\n"
    (tmp_path / "pager-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (tmp_path / "pager-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    setups = load_network_setups()
    assert setups["pager"].title == "Pager"
    assert "broken" not in setups


async def test_the_address_of_the_settings_is_asked(base: str) -> None:
    options = {"base_url": f"{base}/bot"}
    check = CHECKS["TELEGRAM_BOT_TOKEN"]
    assert (await check(NetworkTrial({"TELEGRAM_BOT_TOKEN": TOKEN}, options))).right
