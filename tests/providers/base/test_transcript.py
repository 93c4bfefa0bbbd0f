"""Repair of broken transcripts into a form that providers accept."""

import pytest
from hypothesis import given
from tests.providers.random_histories import PIXEL, histories, make_message, user_message

from talaria.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.base.outgoing import INTERRUPTED, describe_attachment, repair, split_data_uri

MINE = "chat@test:"


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "read_file", "{}")


@pytest.mark.slow
@given(histories)
def test_every_call_is_followed_by_exactly_its_results(history: list[list[Message]]) -> None:
    repaired = repair([message for step in history for message in step], MINE)
    for index, message in enumerate(repaired):
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        following = repaired[index + 1].parts if calls else ()
        assert [part.call_id for part in following if isinstance(part, ToolResult)] == calls
        if message.role == "tool":
            assert any(isinstance(part, ToolCall) for part in repaired[index - 1].parts)


@pytest.mark.slow
@given(histories)
def test_empty_parts_and_reasoning_of_other_providers_are_removed(history: list[list[Message]]) -> None:
    for message in repair([message for step in history for message in step], MINE):
        assert message.parts
        assert all(part.text.strip() for part in message.parts if isinstance(part, Text))
        assert all(part.signature.startswith(MINE) for part in message.parts if isinstance(part, Reasoning))


def test_late_results_are_moved_after_their_calls_in_call_order() -> None:
    late = [
        user_message(Text("hurry")),
        make_message("tool", ToolResult("b", "2")),
        make_message("tool", ToolResult("a", "1")),
    ]
    repaired = repair([user_message(), make_message("assistant", call("a"), call("b")), *late], MINE)
    assert [message.role for message in repaired] == ["user", "assistant", "tool", "user"]
    assert repaired[2].parts == (ToolResult("a", "1"), ToolResult("b", "2"))


def test_an_unanswered_call_is_reported_as_interrupted() -> None:
    repaired = repair([user_message(), make_message("assistant", call("a")), user_message()], MINE)
    assert repaired[2].parts == (ToolResult("a", INTERRUPTED, failed=True),)


def test_result_with_a_reused_id_belongs_to_the_latest_call() -> None:
    first = [make_message("assistant", call("0")), make_message("tool", ToolResult("0", "first"))]
    second = [make_message("assistant", call("0")), make_message("tool", ToolResult("0", "second"))]
    repaired = repair([*first, *second], MINE)
    assert [message.text for message in repaired if message.role == "tool"] == ["first", "second"]


def test_second_results_and_results_without_a_call_are_removed() -> None:
    strays = [make_message("tool", ToolResult("a", "again")), make_message("tool", ToolResult("z", "?"), Image(PIXEL))]
    repaired = repair([make_message("assistant", call("a")), make_message("tool", ToolResult("a", "1")), *strays], MINE)
    assert repaired[1:] == [make_message("tool", ToolResult("a", "1"))]


def test_pictures_stay_with_their_tool_result() -> None:
    seen = make_message("tool", ToolResult("a", "see"), Image(PIXEL))
    assert repair([make_message("assistant", call("a")), seen], MINE)[1].parts == (ToolResult("a", "see"), Image(PIXEL))


def test_note_names_a_file_without_its_content() -> None:
    assert (
        describe_attachment(File("/srv/a.zip", "a.zip", "application/zip"))
        == "[file a.zip (application/zip) /srv/a.zip]"
    )
    assert describe_attachment(Image(PIXEL)) == "[picture (image/png)]"


def test_data_uri_is_split_into_type_and_content() -> None:
    assert split_data_uri(PIXEL) == ("image/png", "iVBORw0KGgo=")
    assert split_data_uri("data:,hi") == ("text/plain", "aGk=")
