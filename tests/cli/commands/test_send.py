"""`talaria send` and `talaria channels` without a gateway; tests/gateway has the tests with one."""

import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Outcome, Program
from tests.cli.stored_sessions import days_ago, read, write

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.runtime.outbox import read_content
from talaria.sessions.chat_directory import HomeChat, record_channel, write_home

FAMILY, ANN = Address("telegram", "-100", "group"), Address("telegram", "11", "private")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    secrets = folder / ".env"
    secrets.write_text("TELEGRAM_BOT_TOKEN=1:x\n")
    secrets.chmod(0o600)
    program = Program(tmp_path)
    write(program, _prepare)
    return program


def _prepare(tx: Transaction) -> None:
    record_channel(tx, ANN, "Ann", days_ago(1))
    record_channel(tx, FAMILY, "Family", days_ago(1) + timedelta(hours=1))
    write_home(tx, HomeChat(ANN))


def queued(program: Program) -> list[tuple[str, str, str]]:
    items = read(program, lambda tx: tx.outbox.find())
    return [(one.address.chat_id, one.address.thread_id, read_content(one.payload).text) for one in items]


def test_message_is_queued_for_a_gateway_and_recorded_in_the_session(program: Program) -> None:
    sent = program.run("send", "telegram:Family", "Dinner at 7.")
    assert (sent.code, sent.out) == (0, "Queued for telegram:Family.\n")
    assert "talaria gateway start" in sent.err
    assert queued(program) == [("-100", "", "Dinner at 7.")]
    (listed,) = json.loads(program.run("sessions", "list", "--json").out)
    shown = program.run("sessions", "show", listed["id"]).out
    assert "Agent, from a script" in shown
    assert "Dinner at 7." in shown


def test_json_output_has_target_and_state_of_a_message(program: Program) -> None:
    sent = program.run("send", "telegram:-100:77", "hi", "--json")
    receipt = json.loads(sent.out)
    assert receipt.pop("key").startswith("script:")
    assert receipt == {
        "target": "telegram:-100:77",
        "platform": "telegram",
        "chat_id": "-100",
        "thread_id": "77",
        "state": "queued",
        "gateway": False,
        "error": "",
    }
    assert sent.err == ""


@pytest.mark.parametrize("arguments", [["send", "telegram"], ["send", "telegram", "-"]])
def test_text_of_a_message_is_read_from_a_pipe(program: Program, arguments: list[str]) -> None:
    piped = subprocess.run(
        [TALARIA, *arguments],
        env=program.environment(),
        input="one\n\ntwo\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert piped.returncode == 0
    assert queued(program) == [("11", "", "one\n\ntwo")]


def test_a_wait_that_times_out_is_reported(program: Program) -> None:
    sent = program.run("send", "telegram", "hi", "--wait", "--timeout", "0.2")
    assert (sent.code, sent.out) == (1, "Queued for telegram.\n")
    assert "No gateway is running" in sent.err
    assert len(queued(program)) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["telegram:Famly", "hi"], "the closest match is `Family`"),
        (["matrix", "hi"], "not connected to a chat network named `matrix`"),
        (["telegram", "  "], "the text is empty"),
        (["telegram"], "the text is empty"),
    ],
)
def test_unknown_target_or_empty_text_is_refused(program: Program, arguments: list[str], sentence: str) -> None:
    refused = program.run("send", *arguments)
    assert refused.code == 1
    assert sentence in refused.err
    assert queued(program) == []


def test_sending_without_a_network_is_refused(tmp_path: Path) -> None:
    refused = Program(tmp_path).run("send", "telegram", "hi")
    assert (refused.code, "talaria setup chat" in refused.err) == (1, True)


def test_chats_are_listed(program: Program) -> None:
    listed = program.run("channels", "list")
    assert listed == Outcome(
        0, "telegram:-100\tFamily\tgroup\t23 h ago\t\ntelegram:11\tAnn\tprivate\t1 day ago\thome\n"
    )
    channels = json.loads(program.run("channels", "list", "telegram", "--json").out)
    assert [(one["target"], one["home"]) for one in channels] == [("telegram:-100", False), ("telegram:11", True)]
    assert program.run("channels", "list", "matrix") == Outcome(0, "")
    assert "No chats are known yet" in program.run_on_terminal("channels", "list", "matrix").out
