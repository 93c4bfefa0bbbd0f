"""Send file tool: files are queued for the chat of the session once, within limits."""

from pathlib import Path

import pytest
from msgspec import structs
from tests.tools.tool_calls import call_from

from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call
from talaria.core.addresses import Address
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image
from talaria.core.session_context import SessionContext
from talaria.runtime.cross_posts import ChatMessageSender
from talaria.runtime.outbox import read_content
from talaria.sessions.keys import build_session_key
from talaria.testing.telegram_server import picture
from talaria.tools.send.tool import SendFile, SendFileArguments

ANN = Address("telegram", "11", "private")


def _prepare(tx: Transaction) -> SessionId:
    session = tx.sessions.create(NewSession(source="telegram"))
    tx.bindings.bind(build_session_key(ANN), session.id, ANN)
    return session.id


@pytest.fixture
async def call(store: Store, tmp_path: Path) -> Call:
    here = await store.write(_prepare)
    folder = tmp_path / "work"
    folder.mkdir()
    context = SessionContext(platform="telegram", chat_id="11", turn_id="turn-1", session_id=here)
    return structs.replace(call_from(folder, session_id=here), context=context)


@pytest.fixture
def tool(store: Store, tmp_path: Path) -> SendFile:
    return SendFile(ChatMessageSender(store, ["telegram"]), tmp_path / "sent", 1_000)


async def queued(store: Store) -> list[tuple[str, File | Image]]:
    items = await store.read(lambda tx: tx.outbox.find())
    contents = [read_content(item.payload) for item in items]
    return [(content.text, file) for content in contents for file in content.files]


def write(call: Call, name: str, data: bytes) -> Path:
    path = call.workspace.resolve(name)
    path.write_bytes(data)
    return path


def read(file: File | Image) -> bytes:
    return Path(file.source).read_bytes()


async def test_sent_file_has_its_content_at_the_time_of_the_call(store: Store, tool: SendFile, call: Call) -> None:
    write(call, "report.csv", b"a,b")
    output = await tool.run(SendFileArguments("report.csv", " the figures "), call)
    assert output.text.startswith("Sending report.csv to this chat.")
    write(call, "report.csv", b"spoilt")
    ((caption, file),) = await queued(store)
    assert isinstance(file, File)
    assert (caption, file.name, file.media_type, read(file)) == ("the figures", "report.csv", "text/csv", b"a,b")


async def test_image_file_is_sent_as_an_image(store: Store, tool: SendFile, call: Call) -> None:
    write(call, "plot", picture(8, 8))
    await tool.run(SendFileArguments("plot"), call)
    ((_, file),) = await queued(store)
    assert isinstance(file, Image)
    assert file.media_type == "image/png"


async def test_repeated_call_sends_no_second_file(store: Store, tool: SendFile, call: Call) -> None:
    write(call, "report.csv", b"a,b")
    for _ in range(2):
        await tool.run(SendFileArguments("report.csv"), call)
    assert len(await queued(store)) == 1
    await tool.run(SendFileArguments("report.csv"), structs.replace(call, id="another"))
    assert len(await queued(store)) == 2


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("large.bin", b"x" * 1_001, "1,001 bytes; this network's limit is 1,000"),
        ("empty.txt", b"", "is empty"),
        ("missing.txt", None, "doesn't exist"),
        (".", None, "is a folder"),
    ],
)
async def test_large_empty_or_missing_file_is_refused(
    store: Store, tool: SendFile, call: Call, name: str, data: bytes | None, why: str
) -> None:
    if data is not None:
        write(call, name, data)
    with pytest.raises(ToolFailed, match=why):
        await tool.run(SendFileArguments(name), call)
    assert await queued(store) == []


async def test_network_without_file_support_is_reported(store: Store, call: Call, tmp_path: Path) -> None:
    write(call, "report.csv", b"a,b")
    unsupported = SendFile(ChatMessageSender(store, ["telegram"]), tmp_path / "sent", 0)
    with pytest.raises(ToolFailed, match="This network can't send files"):
        await unsupported.run(SendFileArguments("report.csv"), call)


async def test_session_without_a_chat_cannot_send_a_file(store: Store, tool: SendFile, call: Call) -> None:
    write(call, "report.csv", b"a,b")
    terminal_session = (await store.write(lambda tx: tx.sessions.create(NewSession(source="cli")))).id
    with pytest.raises(ToolFailed, match="isn't in a chat"):
        await tool.run(SendFileArguments("report.csv"), structs.replace(call, session_id=terminal_session))


def test_sending_credentials_needs_approval(tool: SendFile, call: Call, tmp_path: Path) -> None:
    policy = ApprovalPolicy(home=tmp_path, protected=(tmp_path / "profile",))

    def judge(path: str) -> object:
        return policy.judge(tool.name, tool.effect, tool.proposed_action(SendFileArguments(path)), call.workspace)

    assert isinstance(judge("report.csv"), Allow)
    assert isinstance(judge(str(tmp_path / ".ssh" / "id_ed25519")), Ask)
    assert isinstance(judge(str(tmp_path / "profile" / ".env")), Ask)
