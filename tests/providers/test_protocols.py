"""Particularities of single protocols and of servers that deviate from them."""

from typing import Any

import msgspec
import pytest
from tests.providers.random_histories import AT, PIXEL, TOOL, make_message, request, user_message

from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelText
from talaria.core.errors import MalformedReply, ProviderOverloaded
from talaria.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.anthropic import adapter as from_anthropic
from talaria.providers.anthropic import outgoing as to_anthropic
from talaria.providers.base.http_provider import Underway
from talaria.providers.openai_chat import adapter as from_chat
from talaria.providers.openai_chat import outgoing as to_chat
from talaria.providers.openai_responses import adapter as from_responses
from talaria.providers.openai_responses import outgoing as to_responses
from talaria.providers.settings import AnthropicSettings, ChatQuirks, OpenAIChatSettings, OpenAIResponsesSettings

ANTHROPIC = AnthropicSettings(name="test", base_url="https://model.test")
RESPONSES = OpenAIResponsesSettings(name="test", base_url="https://model.test")


def chat(quirks: ChatQuirks | None = None) -> OpenAIChatSettings:
    return OpenAIChatSettings(name="test", base_url="https://model.test", quirks=quirks or ChatQuirks())


def collect(underway: Underway, *chunks: str) -> tuple[list[ModelEvent], ModelReply]:
    events = [event for chunk in chunks for event in underway.take(chunk.encode())]
    return events, underway.reply(AT)


def decoded(body: bytes) -> Any:
    return msgspec.json.decode(body)


def history_with_call(*messages: Message) -> list[Message]:
    return [user_message(), make_message("assistant", ToolCall("a", "read_file", "{}")), *messages]


class TestChat:
    def underway(self) -> from_chat.ReplyUnderway:
        return from_chat.ReplyUnderway("test", "m")

    def test_parallel_calls_that_are_all_numbered_0_are_distinguished_by_id(self) -> None:
        first = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}'
        second = first.replace('"a"', '"b"')
        _, reply = collect(self.underway(), first, second, '{"choices":[{"finish_reason":"stop"}]}')
        assert reply.message.parts == (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))
        assert reply.stop == "tool_calls"

    def test_calls_without_a_number_or_an_id_are_accepted(self) -> None:
        call = '{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}'
        _, reply = collect(self.underway(), call, "[DONE]")
        (part,) = reply.message.parts
        assert isinstance(part, ToolCall)
        assert part.id
        assert part.name == "f"

    def test_extra_content_of_a_google_call_is_sent_back_with_it(self) -> None:
        extra = '{"google":{"thought_signature":"c2ln"}}'
        call = f'{{"index":0,"id":"a","function":{{"name":"f","arguments":"{{}}"}},"extra_content":{extra}}}'
        _, reply = collect(self.underway(), f'{{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}', "[DONE]")
        again = request([user_message(), reply.message, make_message("tool", ToolResult("a", "1"))])
        sent = decoded(to_chat.encode(again, chat()))
        assert sent["messages"][1]["tool_calls"][0]["extra_content"] == decoded(extra.encode())
        other = OpenAIChatSettings(name="other", base_url="https://other.test")
        assert b"thought_signature" not in to_chat.encode(again, other)

    def test_mistral_thinking_content_becomes_reasoning(self) -> None:
        pieces = '[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"Yes."}]'
        events, _ = collect(self.underway(), f'{{"choices":[{{"delta":{{"content":{pieces}}}}}]}}', "[DONE]")
        assert events == [ModelReasoning("Hm."), ModelText("Yes.")]

    def test_cached_tokens_of_deepseek_are_counted(self) -> None:
        usage = '{"choices":[],"usage":{"prompt_tokens":10,"prompt_cache_hit_tokens":8,"completion_tokens":1}}'
        _, reply = collect(self.underway(), usage, "[DONE]")
        assert (reply.usage.input_tokens, reply.usage.cache_read_tokens) == (10, 8)

    def test_refusal_becomes_text_with_the_stop_reason_refused(self) -> None:
        refusal = '{"choices":[{"delta":{"refusal":"I will not."},"finish_reason":"stop"}]}'
        events, reply = collect(self.underway(), refusal)
        assert (events, reply.stop) == ([ModelText("I will not.")], "refused")

    def test_error_chunk_in_a_stream_is_raised(self) -> None:
        with pytest.raises(ProviderOverloaded):
            collect(
                self.underway(), '{"error":{"code":502,"message":"Upstream"},"choices":[{"finish_reason":"error"}]}'
            )

    def test_stream_without_a_finish_reason_is_malformed(self) -> None:
        with pytest.raises(MalformedReply):
            collect(self.underway(), '{"choices":[{"delta":{"content":"Half"}}]}')

    def test_short_ids_are_the_same_for_call_and_result(self) -> None:
        history = history_with_call(make_message("tool", ToolResult("a", "1")))
        sent = decoded(to_chat.encode(request(history), chat(ChatQuirks(short_call_ids=True))))["messages"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]
        assert len(sent[2]["tool_call_id"]) == 9

    def test_effort_and_limits_use_the_fields_of_the_server(self) -> None:
        hard = request(effort="high", max_output_tokens=9)
        openai = decoded(to_chat.encode(hard, chat(ChatQuirks(max_tokens_field="max_completion_tokens"))))
        assert (openai["reasoning_effort"], openai["max_completion_tokens"]) == ("high", 9)
        openrouter = decoded(to_chat.encode(hard, chat(ChatQuirks(effort="reasoning"))))
        assert (openrouter["reasoning"], openrouter["max_tokens"]) == ({"effort": "high"}, 9)
        deepseek = ChatQuirks(effort="thinking", schema="json_object")
        assert decoded(to_chat.encode(hard, chat(deepseek)))["reasoning_effort"] == "high"
        off = decoded(to_chat.encode(request(effort="none", output_schema=TOOL.parameters), chat(deepseek)))
        assert (off["thinking"], off["response_format"]) == ({"type": "disabled"}, {"type": "json_object"})
        mute = to_chat.encode(hard, chat(ChatQuirks(effort="unsupported")))
        assert b"effort" not in mute

    def test_consecutive_user_messages_are_merged_for_alternating_roles(self) -> None:
        history = [user_message(Text("one")), user_message(Text("two")), user_message(Image(PIXEL))]
        sent = decoded(to_chat.encode(request(history), chat(ChatQuirks(alternating_roles=True))))["messages"]
        assert len(sent) == 1
        assert [part["type"] for part in sent[0]["content"]] == ["text", "image_url"]

    def test_filler_reply_is_inserted_between_two_user_messages(self) -> None:
        history = [user_message(Text("one")), user_message(Text("two"))]
        earlier, later = (to_chat.encode(request(history[:count]), chat()) for count in (1, 2))
        sent = decoded(later)["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert [message["content"] for message in sent[::2]] == ["one", "two"]
        assert later.startswith(earlier.removesuffix(b"]}") + b",")

    def test_cross_post_is_merged_into_the_reply_before_it(self) -> None:
        history = [
            make_message("assistant", Text("one")),
            make_message("assistant", Text("two")),
            user_message(Text("three")),
        ]
        alternating = chat(ChatQuirks(alternating_roles=True))
        sent = decoded(to_chat.encode(request(history, system="Be kind."), alternating))["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
        assert sent[2]["content"] == "one\n\ntwo"
        calling = [
            *history,
            *history_with_call(make_message("tool", ToolResult("a", "yes"))),
            make_message("assistant", Text("so it is")),
        ]
        sent = decoded(to_chat.encode(request([*calling, make_message("assistant", Text("by the way"))]), alternating))
        roles = [message["role"] for message in sent["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]
        assert sent["messages"][-1]["content"] == "so it is\n\nby the way"

    def test_pictures_of_tools_are_sent_after_their_results(self) -> None:
        history = history_with_call(make_message("tool", ToolResult("a", "see"), Image(PIXEL)))
        sent = decoded(to_chat.encode(request(history), chat()))["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
        blind = to_chat.encode(request(history), chat(ChatQuirks(images=False)))
        assert b"[picture (image/png)]" in blind


class TestResponses:
    def underway(self) -> from_responses.ReplyUnderway:
        return from_responses.ReplyUnderway("test", "m")

    def test_encrypted_reasoning_is_sent_back_with_its_id(self) -> None:
        item = '{"type":"reasoning","id":"rs_1","summary":[{"text":"A"},{"text":"B"}],"encrypted_content":"sealed:x"}'
        done = '{"type":"response.completed","response":{}}'
        call = '{"type":"function_call","call_id":"a","name":"read_file","arguments":"{}"}'
        events = [f'{{"type":"response.output_item.done","item":{one}}}' for one in (item, call)]
        _, reply = collect(self.underway(), *events, done)
        assert reply.message.parts[0] == Reasoning("A\n\nB", "responses@test:rs_1:sealed:x")
        sent = decoded(to_responses.encode(request([user_message(), reply.message]), RESPONSES))
        assert sent["input"][1] == {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A\n\nB"}],
            "encrypted_content": "sealed:x",
        }

    def test_parts_of_a_reasoning_summary_are_separated(self) -> None:
        added = '{"type":"response.reasoning_summary_part.added","summary_index":1}'
        done = '{"type":"response.completed","response":{}}'
        assert collect(self.underway(), added, done)[0] == [ModelReasoning("\n\n")]

    def test_unknown_events_are_ignored(self) -> None:
        done = '{"type":"response.completed","response":{}}'
        assert collect(self.underway(), '{"type":"response.new","delta":{"a":1},"item":7}', done)[0] == []

    def test_an_error_event_is_raised(self) -> None:
        with pytest.raises(ProviderOverloaded):
            collect(self.underway(), '{"type":"error","code":"server_error","message":"Sorry"}')

    def test_responses_are_not_stored_on_the_server(self) -> None:
        sent = decoded(to_responses.encode(request(effort="low"), RESPONSES))
        assert sent["store"] is False
        assert sent["include"] == ["reasoning.encrypted_content"]
        assert sent["reasoning"] == {"effort": "low", "summary": "auto"}

    def test_document_with_a_url_is_sent_as_its_url(self) -> None:
        paper = File("https://model.test/a.pdf", "a.pdf", "application/pdf")
        sent = decoded(to_responses.encode(request([user_message(Text("Read:"), paper)]), RESPONSES))
        assert sent["input"][0]["content"][1] == {"type": "input_file", "file_url": "https://model.test/a.pdf"}


class TestAnthropic:
    def underway(self) -> from_anthropic.ReplyUnderway:
        return from_anthropic.ReplyUnderway("test", "m")

    def test_redacted_thinking_is_sent_back_unchanged(self) -> None:
        block = '{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x=="}}'
        text = '{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"Hi"}}'
        _, reply = collect(self.underway(), block, text, '{"type":"message_stop"}')
        assert reply.message.parts == (Reasoning("", "anthropic@test:redacted:x=="), Text("Hi"))
        sent = decoded(to_anthropic.encode(request([user_message(), reply.message, user_message()]), ANTHROPIC))
        assert sent["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "x=="}

    def test_delta_of_an_unstarted_block_is_malformed(self) -> None:
        delta = '{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"?"}}'
        with pytest.raises(MalformedReply):
            collect(self.underway(), delta)

    def test_anthropic_messages_alternate_and_start_with_the_user(self) -> None:
        history = [
            make_message("assistant", Text("Hello.")),
            user_message(Text("one")),
            make_message("system", Text("two")),
        ]
        sent = decoded(to_anthropic.encode(request(history), ANTHROPIC))["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert [block["text"] for block in sent[2]["content"]] == ["one", "two"]

    def test_tool_results_come_first_in_their_message(self) -> None:
        history = history_with_call(
            user_message(Text("hurry")), make_message("tool", ToolResult("a", "", failed=True), Image(PIXEL))
        )
        sent = decoded(to_anthropic.encode(request(history), ANTHROPIC))["messages"]
        assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "image", "text"]
        assert sent[2]["content"][0]["is_error"] is True

    def test_cache_marks_are_after_the_prompt_and_at_both_ends(self) -> None:
        history = history_with_call(make_message("tool", ToolResult("a", "1")))
        sent = decoded(to_anthropic.encode(request(history, system="Be kind.", tools=(TOOL,)), ANTHROPIC))
        assert "cache_control" in sent["system"][-1]
        assert ["cache_control" in message["content"][-1] for message in sent["messages"]] == [True, False, True]
        assert "cache_control" not in sent["tools"][-1]
        alone = decoded(to_anthropic.encode(request(history, tools=(TOOL,)), ANTHROPIC))
        assert "cache_control" in alone["tools"][-1]
        once = to_anthropic.encode(request(history, system="Be kind.", output_schema=TOOL.parameters), ANTHROPIC)
        assert b"cache_control" not in once

    def test_older_models_get_a_thinking_budget_and_newer_ones_an_effort(self) -> None:
        hard = request(effort="high", temperature=0.5)
        new = decoded(to_anthropic.encode(hard, ANTHROPIC))
        assert (new["thinking"], new["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
        assert "temperature" not in new
        old_model = msgspec.structs.replace(hard, model="claude-sonnet-4-5")
        old = decoded(to_anthropic.encode(old_model, ANTHROPIC))
        assert old["thinking"] == {"type": "enabled", "budget_tokens": 4096}
        assert "output_config" not in old
        brief = msgspec.structs.replace(old_model, max_output_tokens=1000)
        assert "thinking" not in decoded(to_anthropic.encode(brief, ANTHROPIC))

    def test_no_thinking_budget_is_requested_after_calls_without_thinking(self) -> None:
        history = history_with_call(make_message("tool", ToolResult("a", "1")))
        old = msgspec.structs.replace(request(history, effort="high"), model="claude-sonnet-4-5")
        assert "thinking" not in decoded(to_anthropic.encode(old, ANTHROPIC))

    def test_invalid_arguments_are_wrapped_in_an_object(self) -> None:
        calls = [ToolCall(str(number), "f", text) for number, text in enumerate(['{"a": 1}', "", "{broken", "[1]"])]
        sent = decoded(to_anthropic.encode(request([user_message(), make_message("assistant", *calls)]), ANTHROPIC))
        inputs = [block["input"] for block in sent["messages"][1]["content"]]
        assert inputs == [{"a": 1}, {}, {"unreadable": "{broken"}, {"unreadable": "[1]"}]

    def test_pdf_is_sent_as_base64_and_text_document_as_text(self) -> None:
        paper = File("data:application/pdf;base64,cGFnZXM=", "a.pdf", "application/pdf")
        note = File("data:text/plain;base64,aGk=", "a.txt", "text/plain")
        sent = decoded(to_anthropic.encode(request([user_message(paper, note)]), ANTHROPIC))["messages"][0]["content"]
        assert [block["source"]["type"] for block in sent] == ["base64", "text"]
        assert sent[1]["source"]["data"] == "hi"
