"""Questions of voice assistants: spoken answers in time, later ones in the home chat, once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api.in_process_server import Hosted, hosted

from talaria.access.api_keys import create_key, new_token
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

HOME = Address("telegram", "7")


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    secret = "TELEGRAM_BOT_TOKEN=1:never-used\n"
    async with hosted(tmp_path, model, "[api]\nvoice_seconds = 60.0\n", secret) as served:
        yield served


def sent(tx: Transaction) -> list[str]:
    return [one.payload for one in tx.outbox.find(OutboxFilter()) if one.address.chat_id == HOME.chat_id]


async def test_plain_text_questions_are_answered_in_one_session(host: Hosted, model: ModelServer) -> None:
    model.script(Say("It is *noon*."), Say("In an hour."))
    first = await host.http.post("/v1/ask", content="What time is it?", headers={"content-type": "text/plain"})
    assert (first.status_code, first.text) == (200, "It is *noon*.")
    assert first.headers["content-type"].startswith("text/plain")
    assert "spoken by a voice assistant" in model.received[0].body.decode()
    known = {"x-talaria-session-id": first.headers["x-talaria-session-id"]}
    assert (await host.http.post("/v1/ask", content="And lunch?", headers=known)).text == "In an hour."
    assert "What time is it?" in model.received[1].body.decode()


async def test_conversation_api_of_home_assistant_is_served(host: Hosted, model: ModelServer) -> None:
    model.script(Say("The light is on."), Say("Yes."), Say("New."))
    question = {"text": "Is the light on?", "language": "en", "conversation_id": None, "agent_id": "talaria"}
    first = (await host.http.post("/api/conversation/process", json=question)).json()
    assert first["response"]["speech"]["plain"]["speech"] == "The light is on."
    assert first["response"]["language"] == "en"
    again = {"text": "Sure?", "conversation_id": first["conversation_id"]}
    second = (await host.http.post("/api/conversation/process", json=again)).json()
    assert second["conversation_id"] == first["conversation_id"]
    foreign = {"text": "Hello", "conversation_id": "01JD0000000000000000000000"}
    third = (await host.http.post("/api/conversation/process", json=foreign)).json()
    assert third["response"]["speech"]["plain"]["speech"] == "New."
    assert third["conversation_id"] != first["conversation_id"]


async def test_a_late_answer_is_sent_to_the_home_chat_once(host: Hosted, model: ModelServer) -> None:
    store, released = host.application.store, asyncio.Event()
    await store.write(lambda tx: write_home(tx, HomeChat(HOME)))
    model.script(Say("Forty-two in all.", hold=(1, released)))
    promised = await host.http.post("/v1/ask?seconds=0", content="Count\nthe stars")
    assert promised.text == "That takes a little longer. I'll send you the answer."
    released.set()
    await until(lambda: store.read(lambda tx: bool(sent(tx))))
    (payload,) = await store.read(sent)
    assert "Forty-two in all." in payload
    assert "> Count the stars" in payload


async def test_late_answer_for_a_guest_is_not_sent_to_the_owner(host: Hosted, model: ModelServer) -> None:
    store, released = host.application.store, asyncio.Event()
    await store.write(lambda tx: write_home(tx, HomeChat(HOME)))
    model.script(Say("Late indeed.", hold=(1, released)), Say("Now."))
    key = new_token()
    await store.write(lambda tx: create_key(tx, "kitchen", ("chat",), key))
    guest = {"authorization": f"Bearer {key}"}
    refused = await host.http.post("/v1/ask?seconds=0", content="Count the stars", headers=guest)
    assert refused.text.startswith("That takes longer than I can wait here.")
    released.set()
    known = {"x-talaria-session-id": refused.headers["x-talaria-session-id"]}
    await until(lambda: store.read(lambda tx: _is_answered(tx, known["x-talaria-session-id"])))
    assert (await host.http.post("/v1/ask", content="And now?", headers={**guest, **known})).text == "Now."
    assert await store.read(sent) == []


def _is_answered(tx: Transaction, session_id: str) -> bool:
    return any(one.message.role == "assistant" for one in tx.messages.load(SessionId(session_id)))


@pytest.mark.parametrize(("path", "body"), [("/v1/ask", b" "), ("/api/conversation/process", b'{"text": ""}')])
async def test_question_without_text_or_valid_key_is_refused(host: Hosted, path: str, body: bytes) -> None:
    assert (await host.http.post(path, content=body)).status_code == 400
    unauthorized = await host.http.post(path, content=b'{"text": "hi"}', headers={"authorization": "Bearer wrong"})
    assert unauthorized.status_code == 401
