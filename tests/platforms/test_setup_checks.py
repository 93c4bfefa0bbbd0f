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


def test_every_secret_of_a_setup_question_is_registered() -> None:
    secrets = {one.name for setup in load_network_setups().values() for one in setup.questions if one.is_secret}
    assert secrets <= set(list_secret_names())


def test_every_network_setup_has_a_next_step_and_hints() -> None:
    for setup in load_network_setups().values():
        assert setup.next_step.endswith(".")
        for question in setup.questions:
            assert question.hint.endswith(".")


def test_problems_of_a_named_account_name_its_settings_section() -> None:
    trial = NetworkTrial({"IRC_SERVER": "irc.example.org"}, {"public_url": "https://", "patience": "x"}, account="work")
    found = {name: setup.doctor(trial) for name, setup in load_network_setups().items() if setup.doctor}
    assert len(found) > 10
    for name, problems in found.items():
        assert "platforms.work" in problems[0], name


def test_problems_of_an_answer_do_not_name_a_settings_section() -> None:
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
async def test_valid_token_is_accepted_with_the_name_of_its_bot(base: str, secret: str, sentence: str) -> None:
    result = await check_token(secret, TOKEN, f"{base}/")
    assert (result.outcome, result.sentence, result.right) == ("right", sentence, True)


@pytest.mark.parametrize("secret", CHECKS)
@pytest.mark.parametrize("token", ["123:wrong-secret-one", "wrong", "two words", "line\nbreak", "ключ"])
async def test_wrong_token_is_refused_and_not_shown(base: str, secret: str, token: str) -> None:
    result = await check_token(secret, token, base)
    assert result.outcome == "refused"
    assert result.sentence.endswith(CHECKS[secret].remedy)
    assert "secret" not in result.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_an_unreachable_network_is_distinguished_from_a_wrong_token(secret: str) -> None:
    result = await check_token(secret, TOKEN, "http://127.0.0.1:9")
    assert result.outcome == "unreachable"
    assert "at http://127.0.0.1:9. Check the network" in result.sentence
    assert TOKEN not in result.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_silent_network_is_reported_after_the_timeout(base: str, secret: str) -> None:
    result = await check_token(secret, TOKEN, f"{base}/silent", seconds=0.2)
    assert result.outcome == "late"
    assert "didn't answer within 0.2 s" in result.sentence


@pytest.mark.parametrize("secret", CHECKS)
@pytest.mark.parametrize("path", ["page", "elsewhere"])
async def test_an_answer_of_another_service_is_rejected(base: str, secret: str, path: str) -> None:
    result = await check_token(secret, TOKEN, f"{base}/{path}")
    assert result.outcome == "odd"
    assert "doesn't respond like" in result.sentence


@pytest.mark.parametrize("secret", CHECKS)
async def test_server_error_is_distinguished_from_a_wrong_token(base: str, secret: str) -> None:
    result = await check_token(secret, TOKEN, f"{base}/trouble")
    assert (result.outcome, "is having problems (HTTP 502). Try again" in result.sentence) == ("odd", True)


async def test_invalid_server_address_is_reported_as_unreachable() -> None:
    assert (await check_token("MATRIX_ACCESS_TOKEN", TOKEN, "http://")).outcome == "unreachable"


async def test_matrix_token_is_not_checked_without_a_server() -> None:
    result = await check_token("MATRIX_ACCESS_TOKEN", TOKEN)
    assert (result.outcome, "belongs to a server" in result.sentence) == ("odd", True)


async def test_ntfy_setup_checks_topic_and_token() -> None:
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


async def test_token_check_uses_the_base_url_of_the_settings(base: str) -> None:
    options = {"base_url": f"{base}/bot"}
    check = CHECKS["TELEGRAM_BOT_TOKEN"]
    assert (await check(NetworkTrial({"TELEGRAM_BOT_TOKEN": TOKEN}, options))).right
