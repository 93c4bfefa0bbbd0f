"""Settings of the HTTP server that speaks OpenAI's protocols."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.settings.checks import are_host_names, are_origins

_ORIGINS = {"check": are_origins, "expected": "a list, each item such as https://chat.example.org, or *"}
_HOSTS = {"check": are_host_names, "expected": "a list of names such as talaria.example.org, without a port"}


class Api(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server that speaks OpenAI's protocols (`talaria serve`)."""

    enabled: Annotated[bool, Meta(description="Whether `talaria gateway` serves it as well.")] = False
    keyless: Annotated[
        bool,
        Meta(
            description="Whether requests without a key may chat as a guest; on loopback only, without approvals,"
            " admin routes or tools that run programs."
        ),
    ] = False
    host: Annotated[str, Meta(description="The address to listen at.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="The port; 0 means any that is free.")] = 8642
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="Names by which it is asked besides localhost and its own address.", extra=_HOSTS),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(description="Origins of pages in a browser that may ask; `*` means all.", extra=_ORIGINS),
    ] = ()
    body_megabytes: Annotated[float, Meta(gt=0, le=1000, description="How large a request may be.")] = 20.0
    requests_per_minute: Annotated[
        int, Meta(ge=0, description="How many requests a key may make in a minute; 0 means any number.")
    ] = 0
    requests_at_once: Annotated[
        int, Meta(ge=0, description="How many requests of a key may run at once; 0 means any number.")
    ] = 128
    connections: Annotated[
        int,
        Meta(
            ge=16,
            le=100_000,
            description="How many connections may be open, at most half of the files the process may open; for more,"
            " the one that is idle for longest is closed.",
        ),
    ] = 512
    head_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long the head of a request may take to arrive.")
    ] = 10.0
    heartbeat_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="After how much silence a stream says that it is still there.")
    ] = 15.0
    stall_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="After how long a client that takes nothing counts as gone.")
    ] = 60.0
    conversations: Annotated[int, Meta(ge=1, le=100_000, description="How many conversations are kept open.")] = 128
    idle_seconds: Annotated[
        float, Meta(ge=1, description="How long a conversation is kept open in which nothing goes on.")
    ] = 3600.0
