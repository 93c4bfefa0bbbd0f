"""The OpenAPI document, generated from the routes and their structs."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from talaria.api.front_door import ErrorEnvelope
from talaria.http.idempotency import HEADER
from talaria.http.router import Route

_REFERENCE = "#/components/schemas/{name}"
_PART = re.compile(r"{(\w+)\*?}")
_SCHEME = "key"
_HEADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "idempotency-key": (
        "Makes the request safe to retry for a day: repeats get the stored answer.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    "last-event-id": ("The number of the last event received.", {"type": "string", "pattern": r"^\d{1,18}$"}),
    "x-talaria-events": (
        "Whether tool progress is sent as separate events, or not at all.",
        {"type": "string", "enum": ["tools", "none"]},
    ),
    "x-talaria-session-id": ("The session to continue.", {"type": "string"}),
}


def build_openapi(routes: Sequence[Route], version: str) -> Mapping[str, Any]:
    """Return the document."""
    kinds = {
        kind
        for route in routes
        for kind in (route.takes, route.asks, route.reply_type, route.events)
        if kind is not None
    }
    ordered = [*sorted(kinds, key=lambda kind: getattr(kind, "__name__", str(kind))), ErrorEnvelope]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = _build_operation(
            route, found, components
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Talaria",
            "version": version,
            "description": "Talaria's HTTP API, compatible with OpenAI clients.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer"}},
        },
    }


def _build_operation(route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _make_operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "security": [{_SCHEME: []}] if route.scope is not None else [],
        "parameters": [
            *_list_path_parameters(route),
            *_list_query_parameters(route, schemas, components),
            *_list_header_parameters(route),
        ],
        "responses": _build_responses(route, schemas),
    }
    if route.scope is not None:
        operation["description"] = f"Requires a key with the scope `{route.scope}`."
    if route.takes is not None:
        body = {"application/json": {"schema": schemas[route.takes]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _build_responses(route: Route, schemas: Mapping[Any, Any]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    if route.reply_type is not None:
        content["application/json"] = {"schema": schemas[route.reply_type]}
    if route.events is not None:  # as in OpenAI's own description: the schema of the data of one event
        content["text/event-stream"] = {"schema": schemas[route.events]}
    success: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if content:
        success["content"] = content
    error = {"application/json": {"schema": schemas[ErrorEnvelope]}}
    return {str(route.status): success, "default": {"description": "Error", "content": error}}


def _list_path_parameters(route: Route) -> list[Mapping[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _PART.findall(route.path)]


def _list_query_parameters(
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


def _list_header_parameters(route: Route) -> list[Mapping[str, Any]]:
    names = sorted({*route.used_headers, *([HEADER] if route.repeatable else ())})
    return [
        {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
        for name in names
        for description, schema in (_HEADERS[name],)
    ]


def _make_operation_id(route: Route) -> str:
    description = re.findall(r"\w+", route.path.removeprefix("/v1"))
    return "_".join((route.method.lower(), *description))
