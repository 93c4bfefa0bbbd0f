"""The OpenAPI document, made of the routes and their structs."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from talaria.api.idempotency import HEADER
from talaria.api.problems import ErrorAnswer
from talaria.api.router import Route

_REFERENCE = "#/components/schemas/{name}"
_PART = re.compile(r"{(\w+)\*?}")
_SCHEME = "key"
_HEADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "idempotency-key": (
        "Lets the same request be answered once, for a day.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    "last-event-id": ("The number of the event that was heard last.", {"type": "string", "pattern": r"^\d{1,18}$"}),
    "x-talaria-events": (
        "Whether news of tools come as events of their own, or not at all.",
        {"type": "string", "enum": ["tools", "none"]},
    ),
    "x-talaria-session-id": ("The conversation to go on with.", {"type": "string"}),
}


def describe(routes: Sequence[Route], version: str) -> Mapping[str, Any]:
    """Return the document."""
    kinds = {
        kind for route in routes for kind in (route.takes, route.asks, route.gives, route.events) if kind is not None
    }
    ordered = [*sorted(kinds, key=lambda kind: getattr(kind, "__name__", str(kind))), ErrorAnswer]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = _operation(route, found, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Talaria",
            "version": version,
            "description": "The agent over HTTP, compatible with OpenAI's clients.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "tags": [route.tag],
        "security": [{_SCHEME: []}] if route.scope is not None else [],
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route, schemas, components),
            *_header_parameters(route),
        ],
        "responses": _responses(route, schemas),
    }
    if route.scope is not None:
        operation["description"] = f"Needs a key with the scope `{route.scope}`."
    if route.takes is not None:
        body = {"application/json": {"schema": schemas[route.takes]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _responses(route: Route, schemas: Mapping[Any, Any]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    if route.gives is not None:
        content["application/json"] = {"schema": schemas[route.gives]}
    if route.events is not None:  # as in OpenAI's own description: the schema is that of the data of one event
        content["text/event-stream"] = {"schema": schemas[route.events]}
    good: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if content:
        good["content"] = content
    error = {"application/json": {"schema": schemas[ErrorAnswer]}}
    return {str(route.status): good, "default": {"description": "What is wrong", "content": error}}


def _path_parameters(route: Route) -> list[Mapping[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _PART.findall(route.path)]


def _query_parameters(
    route: Route, schemas: Mapping[type, Any], components: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    if route.asks is None:
        return []
    described = components[schemas[route.asks]["$ref"].rpartition("/")[2]]
    required = described.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in described.get("properties", {}).items()
    ]


def _header_parameters(route: Route) -> list[Mapping[str, Any]]:
    names = sorted({*route.heeds, *([HEADER] if route.repeatable else ())})
    return [
        {"name": name, "in": "header", "required": False, "description": words, "schema": schema}
        for name in names
        for words, schema in (_HEADERS[name],)
    ]


def _name(route: Route) -> str:
    words = re.findall(r"\w+", route.path.removeprefix("/v1"))
    return "_".join((route.method.lower(), *words))
