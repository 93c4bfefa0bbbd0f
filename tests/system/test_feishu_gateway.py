"""The gateway on Feishu: killed while messages arrive and replies are posted, everything is answered once."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.feishu_server import FeishuKeys, FeishuServer, feishu_server, read_text
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

KEYS = FeishuKeys("cli_a1b2c3", "feishu-secret-of-the-tests", "encrypt-key", "verification-token")
PEOPLE = ("ann", "bob", "cleo")
KILLS, MESSAGES = 3, 4


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuServer]:
    people = {f"ou_{person}": person for person in PEOPLE}
    async with feishu_server(KEYS, people, {f"oc_{person}": "p2p" for person in PEOPLE}) as server:
        yield server


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, feishu: FeishuServer) -> Program:
    port = free_port()
    feishu.tunnel = f"http://127.0.0.1:{port}/feishu"
    allowed = ", ".join(f'"feishu:ou_{person}"' for person in PEOPLE)
    settings = (
        f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n[platforms.feishu.options]\n"
        f'api_url = "{feishu.url}"\nport = "{port}"\npublic_url = "https://talaria.example/feishu"\n'
    )
    secrets = (
        f"FEISHU_APP_ID={KEYS.app_id}\nFEISHU_APP_SECRET={KEYS.secret}\n"
        f"FEISHU_ENCRYPT_KEY={KEYS.encrypt_key}\nFEISHU_VERIFICATION_TOKEN={KEYS.token}\n"
    )
    return scripted_program(tmp_path, server, settings, secrets)


async def test_every_message_is_answered_once_although_the_gateway_is_killed(
    program: Program, server: ModelServer, feishu: FeishuServer
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    asked = [f"{person} {number}" for number in range(MESSAGES) for person in PEOPLE]
    for question in asked:
        person = question.split()[0]
        feishu.say(f"oc_{person}", f"ou_{person}", "text", {"text": question})
    for kill in range(KILLS):
        async with running(program) as process:
            await until(lambda: feishu.sender.accepted + len(feishu.sent) > kill * 3)  # noqa: B023 (used at once)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with running(program):
        await until(lambda: all(any(one in text for text in _replies(feishu)) for one in asked))
        feishu.say("oc_ann", "ou_ann", "text", {"text": "the end"})
        await until(lambda: any("the end" in text for text in _replies(feishu)))
    answered = [line for text in _replies(feishu) for line in text.removeprefix("re: ").splitlines()]
    assert sorted(filter(None, answered)) == sorted([*asked, "the end"])


def _replies(feishu: FeishuServer) -> list[str]:
    return [read_text(one) for one in feishu.sent]
