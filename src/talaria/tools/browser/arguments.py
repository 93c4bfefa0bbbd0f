"""Arguments of the browser tools."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class BrowserArguments(Struct, frozen=True):
    """A page, and an action that reads it."""

    action: Literal[
        "open", "snapshot", "screenshot", "scroll", "back", "tabs", "switch_tab", "close_tab", "console", "wait",
        "wait_gone", "ask_person",
    ]  # fmt: skip
    url: str = ""
    text: Annotated[
        str, Meta(description="to search in a snapshot, to wait for, or what the person should do")
    ] = ""  # fmt: skip
    part: Annotated[int, Meta(ge=1, description="of a long snapshot")] = 1
    ref: str = ""
    tab: Annotated[int, Meta(ge=0, description="0: new")] = 0
    screens: Annotated[int, Meta(ge=-50, le=50, description="to scroll; negative is up")] = 1
    send: Annotated[bool, Meta(description="send the screenshot to the chat")] = False


class BrowserActArguments(Struct, frozen=True):
    """An action on the current page."""

    action: Literal["click", "type", "press", "select", "upload", "script"]
    ref: str = ""
    text: Annotated[str, Meta(description="text, key, option, file path or JavaScript")] = ""
    enter: Annotated[bool, Meta(description="press Enter after typing")] = False
    submit: Annotated[bool, Meta(description="required if it submits a form, sends, buys or deletes")] = False
    accept: Annotated[bool, Meta(description="confirm the dialog it opens")] = False
