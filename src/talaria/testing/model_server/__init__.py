"""A scripted model server: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages."""

from talaria.testing.model_server.exchange import (
    Ask,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    Received,
    Say,
    Silence,
    Tokens,
    WrongType,
    bad_key,
    context_too_long,
    model_unknown,
    no_credit,
    overloaded,
    refused,
)
from talaria.testing.model_server.server import ModelServer
from talaria.testing.model_server.wire import Answer, Instant

__all__ = [
    "Answer",
    "Ask",
    "Collapse",
    "CutOff",
    "Fail",
    "Garbage",
    "Instant",
    "ModelServer",
    "Received",
    "Say",
    "Silence",
    "Tokens",
    "WrongType",
    "bad_key",
    "context_too_long",
    "model_unknown",
    "no_credit",
    "overloaded",
    "refused",
]
