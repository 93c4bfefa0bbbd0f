"""A client's input, text or items: its wire types, and its conversion to messages."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from talaria.api.files import ImageStore
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import File, Image, Message, Part, Text, ToolCall, ToolResult
from talaria.http.errors import Problem, make_unsupported

Metadata = dict[str, str]
_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["input_text", "input_image", "output_text", "refusal"]},
        "text": {"type": "string"},
        "image_url": {"type": "string"},
        "refusal": {"type": "string"},
    },
}


_ITEM = {
    "title": "InputItem",
    "type": "object",
    "properties": {
        "type": {
            "enum": ["message", "item_reference", "mcp_call", "function_call", "function_call_output", "reasoning"],
        },
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]},
    },
}


InputItem = Annotated[Raw, Meta(description="A message or a tool call.", extra_json_schema=_ITEM)]
Input = Annotated[
    str | list[InputItem], Meta(description="The input: text, or a list of items that ends with a user message.")
]
_MAX_ITEMS = 10_000
FindItem = Callable[[str], Raw | None]
T = TypeVar("T")


class ParsedInput(Struct, frozen=True):
    """A client's input: ``message`` is answered, ``history`` precedes it, ``instructions`` apply to all.

    ``items`` is the same input for display. Images are as the client sent them: see `store_images`.
    """

    message: Message
    history: tuple[Message, ...] = ()
    instructions: str = ""
    items: tuple[Raw, ...] = ()


class _ItemKind(Struct):
    type: str = "message"
    role: str = ""
    id: str | None = None


class _TextPart(Struct, tag="input_text"):
    text: str


class _OutputPart(Struct, tag="output_text"):
    text: str


class _SummaryPart(Struct, tag="text"):
    text: str


class _RefusalPart(Struct, tag="refusal"):
    refusal: str


class _ImagePart(Struct, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None


class _FilePart(Struct, tag="input_file"):
    filename: str = "file"
    file_data: str | None = None


_Content = _TextPart | _OutputPart | _SummaryPart | _RefusalPart | _ImagePart | _FilePart


class _MessageItem(Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Content]


class _FunctionCall(Struct):
    call_id: str
    name: str
    arguments: str


class _CallOutput(Struct):
    call_id: str
    output: str | list[_Content]


class _ServerCall(Struct):
    id: str
    name: str
    arguments: str
    output: str | None = None


class _StoredItem(Struct):
    """A user message for display."""

    id: str
    role: str
    content: list[dict[str, str]]
    type: str = "message"
    status: str = "completed"


_encode = msgspec.json.Encoder().encode


def read_input(raw_input: str | Sequence[Raw] | None, fetch: FindItem, param: str = "input") -> ParsedInput:
    """Return the parsed input, or raise a `Problem`; ``fetch`` finds an item of an earlier response by id."""
    if raw_input is None:
        raise Problem(
            f"`{param}` is missing: there's nothing to answer.", param=param, code="missing_required_parameter"
        )
    if isinstance(raw_input, str):
        return ParsedInput(
            _make_message("user", _require_content([Text(raw_input)], param)), items=(_make_text_item(raw_input),)
        )
    if len(raw_input) > _MAX_ITEMS:
        raise Problem(f"`{param}` may have at most {_MAX_ITEMS:,} items.", param=param, code="invalid_value")
    return _build_input(
        [_parse_item(item, f"{param}[{number}]", fetch) for number, item in enumerate(raw_input)], raw_input, param
    )


def _build_input(read: list[Sequence[Message]], raw_input: Sequence[Raw], param: str) -> ParsedInput:
    messages = [message for item in read for message in item]
    instructions = "\n\n".join(message.text for message in messages if message.role == "system")
    spoken = [message for message in messages if message.role != "system"]
    last: list[Part] = []
    while spoken and spoken[-1].role == "user":
        last[:0] = spoken.pop().parts
    if not last:
        raise Problem(f"The last item of `{param}` must be a user message.", param=param, code="invalid_value")
    stored_items = tuple(_add_id(item) for item in raw_input)
    return ParsedInput(_make_message("user", _require_content(last, param)), tuple(spoken), instructions, stored_items)


def _require_content(parts: list[Part], param: str) -> list[Part]:
    if not any(
        isinstance(part, Image | File) or (isinstance(part, Text) and part.text.replace("\0", "").strip())
        for part in parts
    ):
        raise Problem(f"`{param}` is empty: there's nothing to answer.", param=param, code="invalid_value")
    return parts


def _parse_item(item: Raw, path: str, fetch: FindItem) -> Sequence[Message]:
    kind = _decode(item, _ItemKind, path)
    match kind.type:
        case "message":
            return [_parse_message(_decode(item, _MessageItem, path), path)]
        case "item_reference":
            found = fetch(kind.id or "")
            if found is None:
                raise Problem(f"There is no item `{(kind.id or '')[:64]}`.", param=path, code="item_not_found")
            return _parse_item(found, path, lambda _: None)
        case "mcp_call":
            call = _decode(item, _ServerCall, path)
            return [_make_call(call.id, call.name, call.arguments), _make_result(call.id, call.output or "")]
        case "function_call":
            function_call = _decode(item, _FunctionCall, path)
            return [_make_call(function_call.call_id, function_call.name, function_call.arguments)]
        case "function_call_output":
            answer = _decode(item, _CallOutput, path)
            words = answer.output if isinstance(answer.output, str) else _join_text(answer.output)
            return [_make_result(answer.call_id, words)]
        case "reasoning":
            return []
        case other:
            raise make_unsupported(path, f"Items of type `{other[:64]}` are not supported.")


def _parse_message(spoken: _MessageItem, path: str) -> Message:
    content = [_TextPart(spoken.content)] if isinstance(spoken.content, str) else spoken.content
    if spoken.role == "assistant":
        return _make_message("assistant", (Text(_join_text(content)),))
    if spoken.role != "user":
        return _make_message("system", (Text(_join_text(content)),))
    return _make_message(
        "user", [_parse_part(part, f"{path}.content[{number}]") for number, part in enumerate(content)]
    )


def _parse_part(part: _Content, path: str) -> Part:
    match part:
        case _ImagePart(image_url=address):
            if address is None:
                raise make_unsupported(
                    f"{path}.file_id", "Uploaded files are not supported. Put the image in `image_url`."
                )
            return Image(address)
        case _FilePart(filename=name, file_data=data):
            if data is None:
                raise make_unsupported(path, "Put the file in `file_data`, as a `data:` URL.")
            return File(data, name)
        case _RefusalPart(words):
            return Text(words)
        case _:
            return Text(part.text)


def make_instruction(words: str) -> Message:
    """Return instructions for the middle of a session, whose beginning stays unchanged."""
    return _make_message("system", (Text(words),))


async def store_images(
    messages: Sequence[Message], image_store: ImageStore, session_id: SessionId
) -> tuple[Message, ...]:
    """Return the messages with their images and files stored in the session's folder."""
    return tuple([await _store_images(message, image_store, session_id) for message in messages])


async def _store_images(message: Message, image_store: ImageStore, session_id: SessionId) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Image):
            parts.append(await image_store.store_image(part.source, session_id))
        elif isinstance(part, File):
            parts.append(await image_store.store_file(part.source, part.name, session_id))
        else:
            parts.append(part)
    return structs.replace(message, parts=tuple(parts))


def _join_text(content: Iterable[_Content]) -> str:
    texts = (part.refusal if isinstance(part, _RefusalPart) else getattr(part, "text", "") for part in content)
    return "\n".join(text for text in texts if text)


def _make_call(call_id: str, name: str, arguments: str) -> Message:
    return _make_message("assistant", (ToolCall(call_id, name, arguments),))


def _make_result(call_id: str, text: str) -> Message:
    return _make_message("tool", (ToolResult(call_id, text),))


def _make_message(role: Literal["user", "assistant", "system", "tool"], parts: Iterable[Part]) -> Message:
    return Message(role=role, parts=tuple(parts), at=datetime.now(UTC))


def _decode(item: Raw, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(item, type=kind)
    except msgspec.MsgspecError as error:
        sentence, _, where = str(error).partition(" - at `$")
        at = path + where.rstrip("`")
        raise Problem(f"`{at}` is invalid: {sentence}.", param=at, code="invalid_value") from error


def _make_text_item(text: str) -> Raw:
    return Raw(_encode(_StoredItem(f"msg_{new_id()}", "user", [{"type": "input_text", "text": text}])))


def _add_id(item: Raw) -> Raw:
    """Return an item with an id, and with text as a list of parts, as clients expect it."""
    fields = msgspec.json.decode(item)
    kind = fields.setdefault("type", "message")
    fields["id"] = fields.get("id") or f"{'msg' if kind == 'message' else 'item'}_{new_id()}"
    if kind == "message":
        fields.setdefault("status", "completed")
        if isinstance(fields.get("content"), str):
            part = "output_text" if fields.get("role") == "assistant" else "input_text"
            fields["content"] = [{"type": part, "text": fields["content"]}]
    return Raw(_encode(fields))
