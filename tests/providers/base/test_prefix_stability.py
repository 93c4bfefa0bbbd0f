"""Equal requests have equal bytes, and added messages change only their end."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.random_histories import (
    TOOL,
    histories,
    make_message,
    reply_messages,
    request,
    user_message,
    user_messages,
)

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
    "chat": (lambda user_message: chat.encode(user_message, CHAT), len(b"]}")),
    "thinking chat": (lambda user_message: chat.encode(user_message, THINKING_CHAT), len(b"]}")),
    "responses": (lambda user_message: responses.encode(user_message, RESPONSES), len(b"]}")),
    "anthropic": (lambda user_message: without_marks(anthropic.encode(user_message, ANTHROPIC)), len(b"]}]}")),
}


def alternating(user_message: ModelRequest) -> bytes:
    return chat.encode(user_message, ALTERNATING_CHAT)


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
        earlier = encode(request([user_message(), *flat(past)], **options))
        later = encode(request([user_message(), *flat(past), *flat(future)], **options))
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
        body = msgspec.json.decode(encode(request([user_message(), *flat(history)], system="Be kind.", tools=(TOOL,))))
        assert list(body)[-1] in {"messages", "input"}, name
        assert next(iter(body)) == "model", name


@given(st.lists(st.text(min_size=1), min_size=1), st.text(min_size=1))
def test_joined_messages_only_grow_at_their_end(past: list[str], more: str) -> None:
    before = [make_message("assistant", Text("Hi.")), *(user_message(Text(text)) for text in past)]
    earlier = chat.encode(request(before), ALTERNATING_CHAT)
    later = chat.encode(request([*before, user_message(Text(more))]), ALTERNATING_CHAT)
    assert later.startswith(earlier[: -len(b'"}]}')])


@given(st.lists(st.text(min_size=1), min_size=1), st.text(min_size=1))
def test_a_cross_post_after_a_reply_changes_only_the_end(sent: list[str], more: str) -> None:
    past = [make_message("assistant", Text("Welcome.")), user_message()]
    future = [
        make_message("assistant", Text("Hi.")),
        *(make_message("assistant", Text(text)) for text in sent),
        user_message(Text(more)),
    ]
    for encode in (*(encode for encode, _ in PROTOCOLS.values()), alternating):
        earlier = encode(request(past, system="Be kind."))
        later = encode(request([*past, *future], system="Be kind."))
        assert later.startswith(earlier.rstrip(b'"}]'))


@pytest.mark.slow
@given(st.lists(st.one_of(user_messages(), reply_messages()), min_size=1, max_size=4))
def test_cache_marks_stay_within_the_limit_of_the_server(history: list[list[Message]]) -> None:
    body = anthropic.encode(request([user_message(), *flat(history)], system="Be kind.", tools=(TOOL,)), ANTHROPIC)
    assert 2 <= body.count(MARK) <= 3


ENCODERS: dict[str, tuple[Callable[[], ConversationEncoder[Any]], Encode]] = {
    "chat": (lambda: chat.ChatEncoder(CHAT), lambda user_message: chat.encode(user_message, CHAT)),
    "thinking chat": (
        lambda: chat.ChatEncoder(THINKING_CHAT),
        lambda user_message: chat.encode(user_message, THINKING_CHAT),
    ),
    "alternating chat": (lambda: chat.ChatEncoder(ALTERNATING_CHAT), alternating),
    "responses": (
        lambda: responses.ResponsesEncoder(RESPONSES),
        lambda user_message: responses.encode(user_message, RESPONSES),
    ),
    "anthropic": (
        lambda: anthropic.AnthropicEncoder(ANTHROPIC),
        lambda user_message: anthropic.encode(user_message, ANTHROPIC),
    ),
}


@pytest.mark.slow
@given(st.lists(st.one_of(user_messages(), reply_messages()), max_size=8), st.lists(st.integers(0, 30), max_size=6))
def test_incremental_encoding_equals_encoding_at_once(history: list[list[Message]], cuts: list[int]) -> None:
    messages = flat(history)
    for name, (make, encode) in ENCODERS.items():
        encoder = make()
        for cut in [*cuts, len(messages)]:  # a smaller cut than the one before is a changed history
            step = request(messages[:cut], system="Be kind.", tools=(TOOL,))
            encoder.take(step.messages, encoder.find_new_messages(step.messages))
            assert encoder.encode(step) == encode(step), name


def test_incremental_encoder_encodes_only_new_messages() -> None:
    encoder = chat.ChatEncoder(CHAT)
    first, second = (
        request([user_message()]),
        request([user_message(), make_message("assistant", Text("Hi.")), user_message(Text("And?"))]),
    )
    encoder.take(first.messages, encoder.find_new_messages(first.messages))
    assert encoder.find_new_messages(second.messages) == second.messages[1:]
