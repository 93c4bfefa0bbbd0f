"""Settings of the browser that the agent uses."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from talaria.settings.sections.checks import is_web_address

_LIVE: dict[str, Any] = {"live": True}


class BrowserSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The browser of the toolset `browser`: a Chromium or Chrome of its own for each session."""

    executable_path: Annotated[
        str,
        Meta(description="Chromium or Chrome to start; empty means the first one found on this machine.", extra=_LIVE),
    ] = ""
    attach: Annotated[
        str,
        Meta(
            description="Address of your own running browser (`--remote-debugging-port`) to use instead, for example "
            "http://127.0.0.1:9222; it is never closed.",
            extra={
                "live": True,
                "check": is_web_address,
                "expected": "empty or an address that starts with http:// or https://",
            },
        ),
    ] = ""
    visible: Annotated[
        bool, Meta(description="Whether the browser has a window, where there is a display.", extra=_LIVE)
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts on this machine or its network that pages may reach, as `name` or `name:port`; all "
            "others there are blocked.",
            extra=_LIVE,
        ),
    ] = ()
    keep_cookies: Annotated[
        bool,
        Meta(
            description="Whether cookies, and with them logins, are stored in the profile for later sessions of the "
            "owner.",
            extra=_LIVE,
        ),
    ] = False
    idle_minutes: Annotated[
        float,
        Meta(gt=0, le=10_080, description="Minutes without use after which a browser is closed.", extra=_LIVE),
    ] = 30.0
    timeout_seconds: Annotated[
        float,
        Meta(ge=1, le=300, description="How long a page may take to answer, and an element to react.", extra=_LIVE),
    ] = 20.0
