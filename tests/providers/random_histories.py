"""Random message histories for property tests, some of them broken."""

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import strategies as st
from msgspec import Raw

from talaria.contracts.provider import ModelRequest, ToolSpec
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult

AT = datetime(2026, 1, 2, tzinfo=UTC)
PIXEL = "data:image/png;base64,iVBORw0KGgo="

texts = st.text(max_size=20)
thoughts = st.builds(
    Reasoning,
    texts,
    st.sampled_from(
        ["", "chat@test:", "chat@test:call:{}", "anthropic@test:c2ln", "responses@test:rs_1:sealed", "other"]
    ),
)
pictures = st.sampled_from([Image("https://model.test/a.png"), Image(PIXEL)])
files = st.sampled_from([File("https://model.test/a.pdf", "a.pdf", "application/pdf"), File("notes.bin", "notes.bin")])
arguments = st.sampled_from(["{}", '{"path": "a"}', "", "{broken", "[1]"])


def make_message(role: str, *parts: Part) -> Message:
    return Message(role=role, parts=parts, at=AT)  # type: ignore[arg-type]


def user_message(*parts: Part) -> Message:
    return make_message("user", *(parts or (Text("hi"),)))


def request(messages: Sequence[Message] = (), **options: object) -> ModelRequest:
    return ModelRequest(model="test-model", messages=tuple(messages) or (user_message(),), **options)  # type: ignore[arg-type]


TOOL = ToolSpec("read_file", "Read a file.", Raw(b'{"type":"object","properties":{"path":{"type":"string"}}}'))


@st.composite
def user_messages(draw: st.DrawFn) -> list[Message]:
    """Messages of a person, perhaps several, perhaps blank."""
    parts = st.lists(st.one_of(texts.map(Text), pictures, files), max_size=3)
    return [
        make_message(draw(st.sampled_from(["user", "user", "system"])), *draw(parts))
        for _ in range(draw(st.integers(1, 2)))
    ]


@st.composite
def reply_messages(draw: st.DrawFn) -> list[Message]:
    """A reply with calls and their results: out of order, some missing, some without a call."""
    ids = [f"call {number}" for number in range(draw(st.integers(0, 3)))]
    calls = [ToolCall(call_id, "read_file", draw(arguments)) for call_id in ids]
    reply = make_message("assistant", *draw(st.lists(thoughts, max_size=1)), Text(draw(texts)), *calls)
    results = [
        ToolResult(call_id, draw(texts), draw(st.booleans())) for call_id in draw(st.permutations([*ids, "stray"]))
    ]
    chosen = draw(st.lists(st.sampled_from(results), unique=True)) if results else []
    between = draw(st.sampled_from([[], [user_message(Text("wait"))]]))
    return [
        reply,
        *between,
        *(make_message("tool", result, *draw(st.lists(pictures, max_size=1))) for result in chosen),
    ]


histories = st.lists(st.one_of(user_messages(), reply_messages()), min_size=1, max_size=6)
