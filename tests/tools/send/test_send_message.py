"""Send message tool: one message per call to another chat, as far as the sender may."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.tools.tool_calls import call_from

from talaria.agent.approval.grants import parse_allow_entry
from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call
from talaria.core.addresses import Address
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.runtime.cross_posts import ChatMessageSender
from talaria.runtime.outbox import read_content
from talaria.sessions.chat_directory import GATEWAY, HomeChat, record_channel, write_home
from talaria.sessions.keys import build_session_key
from talaria.testing.clock import NOON
from talaria.tools.send.tool import SendMessage, SendMessageArguments

FAMILY = Address("telegram", "-100", "group")
ANN = Address("telegram", "11", "private")


def _prepare(tx: Transaction) -> SessionId:
    record_channel(tx, FAMILY, "Family", NOON)
    record_channel(tx, ANN, "Ann", NOON)
    write_home(tx, HomeChat(ANN, "Ann"))
    session = tx.sessions.create(NewSession(source="telegram"))
    tx.bindings.bind(build_session_key(ANN), session.id, ANN)
    return session.id


@pytest.fixture
async def here(store: Store) -> SessionId:
    """The session that sends: Ann's own, in her private chat."""
    return await store.write(_prepare)


@pytest.fixture
def tool(store: Store) -> SendMessage:
    return SendMessage(ChatMessageSender(store, ["telegram", "matrix"]))


def call_here(folder: Path, here: SessionId, number: int = 1, *, owner: str = "", audience: str = "") -> Call:
    context = SessionContext(platform="telegram", chat_id="11", turn_id="turn-1", session_id=here)
    call = call_from(folder, session_id=here, owner=owner, audience=audience)
    return structs.replace(call, id=f"call-{number}", context=context)


async def queued(store: Store) -> list[tuple[str, str]]:
    items = await store.read(lambda tx: tx.outbox.find())
    return [(item.address.chat_id, read_content(item.payload).text) for item in items]


async def test_message_is_sent_to_a_chat_by_its_name(
    store: Store, tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    output = await tool.run(SendMessageArguments("telegram:family", "Dinner at 7."), call_here(tmp_path, here))
    assert output.text == ("Sending to telegram:family. No gateway is running; it will be sent once one starts.")
    assert await queued(store) == [("-100", "Dinner at 7.")]
    binding = await store.read(lambda tx: tx.bindings.get(build_session_key(FAMILY)))
    assert binding is not None
    (recorded,) = await store.read(lambda tx: tx.messages.load(binding.session_id))
    assert (recorded.message.text, recorded.message.author) == ("Dinner at 7.", "Agent, from telegram")


async def test_repeated_call_sends_no_second_message(
    store: Store, tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    arguments = SendMessageArguments("telegram:Family", "Dinner at 7.")
    for _ in range(2):
        await tool.run(arguments, call_here(tmp_path, here))
    assert len(await queued(store)) == 1
    await tool.run(arguments, call_here(tmp_path, here, 2))
    await tool.run(SendMessageArguments("telegram:Family", "Or at 8."), call_here(tmp_path, here))
    assert [text for _, text in await queued(store)] == ["Dinner at 7.", "Dinner at 7.", "Or at 8."]


async def test_home_chat_and_origin_are_targets(
    store: Store, tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    for number, target in enumerate(("telegram", "origin")):
        await tool.run(SendMessageArguments(target, target), call_here(tmp_path, here, number))
    assert await queued(store) == [("11", "telegram"), ("11", "origin")]
    assert await store.read(lambda tx: tx.messages.load(here)) == []


async def test_message_is_sent_to_a_thread(store: Store, tool: SendMessage, here: SessionId, tmp_path: Path) -> None:
    await tool.run(SendMessageArguments("telegram:Family:77", "hi"), call_here(tmp_path, here))
    (item,) = await store.read(lambda tx: tx.outbox.find())
    assert item.address == Address("telegram", "-100", "thread", "77")


async def test_session_without_a_chat_has_no_origin(store: Store, tool: SendMessage, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="isn't in a chat"):
        await tool.run(SendMessageArguments("origin", "hi"), call_from(tmp_path))


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("telegram:Famly", "`Family`"),
        ("matrix", "no home chat"),
        ("irc:#ops", "not connected to a chat network"),
        ("", "not connected to a chat network"),
    ],
)
async def test_unknown_target_is_reported_with_similar_names(
    tool: SendMessage, here: SessionId, tmp_path: Path, target: str, error: str
) -> None:
    with pytest.raises(ToolFailed, match=error):
        await tool.run(SendMessageArguments(target, "hi"), call_here(tmp_path, here))


async def test_chats_are_listed_in_private_and_not_in_groups(
    tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    listed = await tool.run(SendMessageArguments("list"), call_here(tmp_path, here))
    assert sorted(listed.text.splitlines()) == ["telegram:-100 Family (group)", "telegram:11 Ann (private, home)"]
    in_group = call_here(tmp_path, here, audience="telegram/-100")
    with pytest.raises(ToolFailed, match="can read this chat"):
        await tool.run(SendMessageArguments("list"), in_group)
    with pytest.raises(ToolFailed, match=r"^There is no such chat\.$"):
        await tool.run(SendMessageArguments("telegram:An", "hi"), in_group)


async def test_guest_can_send_only_to_the_origin(store: Store, here: SessionId, tmp_path: Path) -> None:
    tool = SendMessage(ChatMessageSender(store, ["telegram"]), guest=True)
    for target in ("telegram", "telegram:Family", "list", "local:note.txt"):
        with pytest.raises(ToolFailed, match="only send messages to `origin`"):
            await tool.run(SendMessageArguments(target, "hi"), call_here(tmp_path, here, owner="telegram:11"))
        assert tool.proposed_action(SendMessageArguments(target, "hi")).destination == ""
    await tool.run(SendMessageArguments("origin", "hi"), call_here(tmp_path, here, owner="telegram:11"))
    assert await queued(store) == [("11", "hi")]


@pytest.mark.parametrize(("text", "error"), [(" ", "no text"), ("x" * 40_001, "the limit is 40,000")])
async def test_empty_and_too_long_messages_are_refused(
    tool: SendMessage, here: SessionId, tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(ToolFailed, match=error):
        await tool.run(SendMessageArguments("telegram", text), call_here(tmp_path, here))


async def test_message_to_a_local_target_is_written_to_a_file(
    tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    arguments = SendMessageArguments("local:notes/today.md", "Dinner at 7.")
    assert (tool.proposed_action(arguments).kind, tool.proposed_action(arguments).target) == ("write", "notes/today.md")
    await tool.run(arguments, call_here(tmp_path, here))
    assert (tmp_path / "notes" / "today.md").read_text() == "Dinner at 7."


def test_messages_to_other_chats_need_approval(tool: SendMessage, tmp_path: Path) -> None:
    workspace = call_from(tmp_path).workspace
    allowed = (parse_allow_entry("send_message telegram:Family"),)
    policy = ApprovalPolicy(home=tmp_path, allowed=allowed)
    judged = {
        target: policy.judge(
            tool.name, tool.effect, tool.proposed_action(SendMessageArguments(target, "hi")), workspace
        )
        for target in ("origin", "telegram", "list", "telegram:Family", "telegram:-100", "matrix:#ops")
    }
    allowed_targets = {target for target, decision in judged.items() if decision == Allow()}
    assert allowed_targets == {"origin", "telegram", "list", "telegram:Family"}
    judgement = judged["matrix:#ops"]
    assert isinstance(judgement, Ask)
    assert judgement.reason == "sends a message to matrix:#ops"


async def test_running_gateway_is_not_reported_as_missing(
    store: Store, tool: SendMessage, here: SessionId, tmp_path: Path
) -> None:
    await store.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(minutes=1)))
    output = await tool.run(SendMessageArguments("telegram", "hi"), call_here(tmp_path, here))
    assert output.text == "Sending to telegram."
