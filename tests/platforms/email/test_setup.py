"""The questions of `talaria setup chat` about e-mail, and their live test with a real server."""

import msgspec
import pytest
from tests.platforms.email.far_side import MailFarSide, compose

from talaria.contracts.setup import NetworkTrial, ProbeResult
from talaria.platforms.email.setup import SETUP

pytestmark = pytest.mark.one_engine


async def try_login(far_side: MailFarSide, **changes: str) -> ProbeResult:
    settings = msgspec.structs.asdict(far_side.settings())
    names = (
        "address",
        "imap_host",
        "imap_port",
        "imap_security",
        "smtp_host",
        "smtp_port",
        "smtp_security",
        "authserv_id",
    )
    password = changes.pop("password", far_side.secret)
    options = {name: str(settings[name]) for name in names} | changes
    (question,) = (one for one in SETUP.questions if one.name == "EMAIL_PASSWORD")
    assert question.check is not None
    return await question.check(NetworkTrial({"EMAIL_PASSWORD": password}, options))


async def test_login_is_tested_with_both_servers(far_side: MailFarSide) -> None:
    result = await try_login(far_side)
    assert (result.outcome, result.sentence) == ("right", f"Logged in to both servers as {far_side.bot}.")
    wrong = await try_login(far_side, password="wrong-one")
    assert wrong.outcome == "refused"
    assert "wrong-one" not in wrong.sentence
    assert (await try_login(far_side, imap_port="9")).outcome == "unreachable"
    assert (await try_login(far_side, smtp_port="9")).outcome == "unreachable"
    missing = await try_login(far_side, imap_host="")
    assert missing.outcome == "odd"
    assert "imap_host and smtp_host" in missing.sentence


async def test_wrong_authserv_id_is_reported(far_side: MailFarSide) -> None:
    await far_side.submit(compose(far_side.alice, far_side.bot, "Hello."))
    assert "authserv_id" not in (await try_login(far_side)).sentence
    sentence = (await try_login(far_side, authserv_id="mx.example.org")).sentence
    assert "checked by `mx.test.local`, and authserv_id is `mx.example.org`" in sentence


def test_doctor_reports_missing_settings() -> None:
    assert SETUP.doctor is not None
    assert "Set address" in SETUP.doctor(NetworkTrial({}, {}))[0]
    assert SETUP.doctor(NetworkTrial({"EMAIL_PASSWORD": "x"}, {"address": "bot@gmail.com"})) == ()
