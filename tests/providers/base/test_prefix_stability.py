"""Equal requests have equal bytes, and added messages change only their end."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.random_histories import TOOL, answered, asked, histories, request, said, spoken

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import Message, Text
from talaria.providers.anthropic import outgoing as anthropic
from talaria.providers.base.outgoing import ConversationEncoder
from talaria.providers.openai_chat import outgoing as chat
from talaria.providers.openai_responses import outgoing as responses
from talaria.providers.settings import AnthropicSettings, ChatQuirks, OpenAIChatSettings, OpenAIResponsesSettings

Encode = Callable[[ModelRequest], bytes]
MARK = b',"cache_control":{"type":"ephemeral"}'
URL = "https://model.test/v1"
CHAT = OpenAIChatSettings(name="test", base_url=URL)
THINKING_CHAT = OpenAIChatSettings(
    name="test", base_url=URL, quirks=ChatQuirks(reasoning_back="reasoning_content", short_call_ids=True)
)
ALTERNATING_CHAT = OpenAIChatSettings(name="test", base_url=URL, quirks=ChatQuirks(alternating_roles=True))
RESPONSES = OpenAIResponsesSettings(name="test", base_url=URL)
ANTHROPIC = AnthropicSettings(name="test", base_url=URL)

PROTOCOLS: dict[str, tuple[Encode, int]] = {
    "chat": (lambda asked: chat.encode(asked, CHAT), len(b"]}")),
    "thinking chat": (lambda asked: chat.encode(asked, THINKING_CHAT), len(b"]}")),
    "responses": (lambda asked: responses.encode(asked, RESPONSES), len(b"]}")),
    "anthropic": (lambda asked: without_marks(anthropic.encode(asked, ANTHROPIC)), len(b"]}]}")),
}


def alternating(asked: ModelRequest) -> bytes:
    return chat.encode(asked, ALTERNATING_CHAT)


def without_marks(body: bytes) -> bytes:
    """Return the bytes that a prompt cache compares: cache marks are not part of them."""
    return body.replace(MARK, b"")


def flat(steps: list[list[Message]]) -> list[Message]:
    return [message for step in steps for message in step]


@pytest.mark.slow
@given(histories, histories)
def test_later_request_starts_with_the_bytes_of_the_earlier_one(
    past: list[list[Message]], future: list[list[Message]]
) -> None:
    options = {"system": "Be kind.", "tools": (TOOL,)}
    for name, (encode, tail) in PROTOCOLS.items():
        earlier = encode(request([asked(), *flat(past)], **options))
        later = encode(request([asked(), *flat(past), *flat(future)], **options))
        assert later.startswith(earlier[:-tail]), name


@pytest.mark.slow
@given(history=histories)
def test_equal_requests_have_equal_bytes(history: list[list[Message]]) -> None:
    again = msgspec.json.decode(msgspec.json.encode(flat(history)), type=list[Message])
    for name, (encode, _) in PROTOCOLS.items():
        assert encode(request(flat(history), tools=(TOOL,))) == encode(request(again, tools=(TOOL,))), name


@pytest.mark.slow
@given(history=histories)
def test_request_body_is_json_that_ends_with_the_messages(history: list[list[Message]]) -> None:
    for name, (encode, _) in PROTOCOLS.items():
        body = msgspec.json.decode(encode(request([asked(), *flat(history)], system="Be kind.", tools=(TOOL,))))
        assert list(body)[-1] in {"messages", "input"}, name
        assert next(iter(body)) == "model", name


@given(st.lists(st.text(min_size=1), min_size=1), st.text(min_size=1))
def test_joined_messages_only_grow_at_their_end(past: list[str], more: str) -> None:
    before = [said("assistant", Text("Hi.")), *(asked(Text(text)) for text in past)]
    earlier = chat.encode(request(before), ALTERNATING_CHAT)
    later = chat.encode(request([*before, asked(Text(more))]), ALTERNATING_CHAT)
    assert later.startswith(earlier[: -len(b'"}]}')])


@given(st.lists(st.text(min_size=1), min_size=1), st.text(min_size=1))
def test_a_cross_post_after_a_reply_changes_only_the_end(sent: list[str], more: str) -> None:
    past = [said("assistant", Text("Welcome.")), asked()]
    future = [said("assistant", Text("Hi.")), *(said("assistant", Text(text)) for text in sent), asked(Text(more))]
    for encode in (*(encode for encode, _ in PROTOCOLS.values()), alternating):
        earlier = encode(request(past, system="Be kind."))
        later = encode(request([*past, *future], system="Be kind."))
        assert later.startswith(earlier.rstrip(b'"}]'))


@pytest.mark.slow
@given(st.lists(st.one_of(spoken(), answered()), min_size=1, max_size=4))
def test_cache_marks_stay_within_the_limit_of_the_server(history: list[list[Message]]) -> None:
    body = anthropic.encode(request([asked(), *flat(history)], system="Be kind.", tools=(TOOL,)), ANTHROPIC)
    assert 2 <= body.count(MARK) <= 3


ENCODERS: dict[str, tuple[Callable[[], ConversationEncoder[Any]], Encode]] = {
    "chat": (lambda: chat.ChatEncoder(CHAT), lambda asked: chat.encode(asked, CHAT)),
    "thinking chat": (lambda: chat.ChatEncoder(THINKING_CHAT), lambda asked: chat.encode(asked, THINKING_CHAT)),
    "alternating chat": (lambda: chat.ChatEncoder(ALTERNATING_CHAT), alternating),
    "responses": (lambda: responses.ResponsesEncoder(RESPONSES), lambda asked: responses.encode(asked, RESPONSES)),
    "anthropic": (lambda: anthropic.AnthropicEncoder(ANTHROPIC), lambda asked: anthropic.encode(asked, ANTHROPIC)),
}


@pytest.mark.slow
@given(st.lists(st.one_of(spoken(), answered()), max_size=8), st.lists(st.integers(0, 30), max_size=6))
def test_incremental_encoding_equals_encoding_at_once(history: list[list[Message]], cuts: list[int]) -> None:
    messages = flat(history)
    for name, (make, encode) in ENCODERS.items():
        encoder = make()
        for cut in [*cuts, len(messages)]:  # a smaller cut than the one before is a changed history
            step = request(messages[:cut], system="Be kind.", tools=(TOOL,))
            encoder.take(step.messages, encoder.fresh(step.messages))
            assert encoder.encode(step) == encode(step), name


def test_incremental_encoder_encodes_only_new_messages() -> None:
    encoder = chat.ChatEncoder(CHAT)
    first, second = request([asked()]), request([asked(), said("assistant", Text("Hi.")), asked(Text("And?"))])
    encoder.take(first.messages, encoder.fresh(first.messages))
    assert encoder.fresh(second.messages) == second.messages[1:]
