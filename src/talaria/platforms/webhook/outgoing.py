"""A reply as it is posted: the same bytes for the same reply, whenever it is tried again."""

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected

TEXT_LIMIT = 50_000


class Reply(Struct, frozen=True, kw_only=True):
    """The body of what is posted."""

    id: str
    route: str
    conversation: str
    reply_to: str
    text: str
    format: str = "markdown"


def encode_reply(to: Address, content: Content, key: str) -> bytes:
    """Return the body for a message; raises `Rejected` for what cannot be posted."""
    if content.files:
        raise Rejected("a webhook carries no files")
    if not content.text.strip():
        raise Rejected("there is nothing to post")
    if len(content.text) > TEXT_LIMIT:
        raise Rejected(f"a webhook takes {TEXT_LIMIT} characters at most")
    text = content.text.encode(errors="replace").decode()
    return msgspec.json.encode(
        Reply(id=key, route=to.chat_id, conversation=to.thread_id, reply_to=content.reply_to, text=text)
    )
