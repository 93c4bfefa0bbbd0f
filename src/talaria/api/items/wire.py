"""Wire types of input items."""

from typing import Annotated

from msgspec import Meta, Raw

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
