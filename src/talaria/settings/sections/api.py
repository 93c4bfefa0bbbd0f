"""Settings of the OpenAI-compatible HTTP server."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.settings.sections.checks import are_addresses, are_host_names, are_origins

_ORIGINS = {"check": are_origins, "expected": "a list, each item for example https://chat.example.org, or *"}
_HOSTS = {"check": are_host_names, "expected": "a list of host names without port, for example talaria.example.org"}
_ADDRESSES = {"live": True, "check": are_addresses, "expected": "a list of IP addresses"}


class ApiSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI-compatible HTTP server (`talaria serve`)."""

    enabled: Annotated[bool, Meta(description="Whether `talaria gateway` also serves the API.")] = False
    push_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Push services that notifications of the web app may be sent to, with their subdomains."),
    ] = ("fcm.googleapis.com", "push.services.mozilla.com", "notify.windows.com", "push.apple.com")
    web: Annotated[bool, Meta(description="Whether the server also serves the web app.")] = True
    keyless: Annotated[
        bool,
        Meta(
            description="Whether requests without a key may chat as a guest; only on loopback, without "
            "approvals, admin routes and tools that run programs."
        ),
    ] = False
    strict_models: Annotated[
        bool,
        Meta(
            description="Whether a request for an unknown model is refused (404); otherwise the model of the settings "
            "answers it."
        ),
    ] = False
    voice_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=300,
            description="How long voice assistants wait for an answer; a later one is sent to the home chat.",
            extra={"live": True},
        ),
    ] = 7.0
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port to listen on; 0 means any free port.")] = 8642
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names it answers to, besides localhost and its own address.", extra=_HOSTS),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(description="Origins of web pages that may call the API; `*` means all.", extra=_ORIGINS),
    ] = ()
    proxy_header: Annotated[
        str,
        Meta(
            description="Header in which a proxy that signs people in to the web app names them, for example "
            "Tailscale-User-Login; the name is an id of `people`, as `web:NAME`.",
            extra={"live": True},
        ),
    ] = ""
    proxy_addresses: Annotated[
        tuple[str, ...],
        Meta(description="Addresses of that proxy; from others the header is ignored.", extra=_ADDRESSES),
    ] = ()
    body_megabytes: Annotated[float, Meta(gt=0, le=1000, description="Maximum size of a request.")] = 20.0
    requests_per_minute: Annotated[
        int, Meta(ge=0, description="Maximum requests per key and minute; 0 means no limit.")
    ] = 0
    requests_at_once: Annotated[
        int, Meta(ge=0, description="Maximum concurrent requests per key; 0 means no limit.")
    ] = 128
    connections: Annotated[
        int,
        Meta(
            ge=16,
            le=100_000,
            description="Maximum open connections, at most half of the process's file limit; beyond it, the connection "
            "that has been idle longest is closed.",
        ),
    ] = 512
    head_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long the head of a request may take to arrive.")
    ] = 10.0
    heartbeat_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="Silence after which a stream sends a keep-alive.")
    ] = 15.0
    stall_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long a client may read nothing before it is disconnected.")
    ] = 60.0
    conversations: Annotated[int, Meta(ge=1, le=100_000, description="Maximum number of open conversations.")] = 128
    idle_seconds: Annotated[float, Meta(ge=1, description="How long an idle conversation stays open.")] = 3600.0
