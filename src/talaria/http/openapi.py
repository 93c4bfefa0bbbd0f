"""The description of all routes, generated from them and their structs: an OpenAPI document and an HTML page."""

import html
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from talaria.http.idempotency import HEADER
from talaria.http.routing import FILE, Route

_REFERENCE = "#/components/schemas/{name}"
_PART = re.compile(r"{(\w+)\*?}")
_CODE = re.compile("`([^`]*)`")
_UNSAFE = frozenset({"DELETE", "PATCH", "POST", "PUT"})
_HEADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "idempotency-key": (
        "Makes the request safe to retry for a day: repeats get the stored answer.",
        {"type": "string", "minLength": 1, "maxLength": 255},
    ),
    "last-event-id": ("The number of the last event received.", {"type": "string", "pattern": r"^\d{1,18}$"}),
    "x-talaria": ("Marks a request as one of the web app.", {"type": "string", "enum": ["web"]}),
    "x-talaria-events": (
        "Whether tool progress is sent as separate events, or not at all.",
        {"type": "string", "enum": ["tools", "none"]},
    ),
    "x-talaria-session-id": ("The session to continue.", {"type": "string"}),
}
_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Talaria's API</title>
<style>
:root{{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}}
body{{max-width:56rem;margin:2rem auto;padding:0 1rem}}
code,pre{{font:.9rem ui-monospace,monospace}}
summary{{cursor:pointer;padding:.4rem 0}} summary b{{display:inline-block;width:4.5rem}}
details{{border-bottom:1px solid #8884}} pre{{overflow:auto;background:#8881;padding:.8rem;border-radius:.4rem}}
h2{{margin-top:2rem}}
</style>
<h1>Talaria {version}</h1>
<p>Talaria's HTTP API. To use an OpenAI client, set its base URL to <code id="base">/v1</code> and its model to
<code>talaria</code>. Machine-readable description: <a href="/openapi.json">/openapi.json</a>.</p>
{groups}
<script>
const base = document.getElementById("base"); base.textContent = location.origin + "/v1";
const shown = (spec, schema) => {{
  while (schema && schema.$ref) schema = spec.components.schemas[schema.$ref.split("/").pop()];
  return schema;
}};
fetch("/openapi.json").then(answer => answer.json()).then(spec => {{
  for (const box of document.querySelectorAll("details")) {{
    const about = spec.paths[box.dataset.path][box.dataset.method];
    const says = {{}};
    if (about.parameters.length) says.parameters = about.parameters.map(one => one.name + " (" + one.in + ")");
    const body = about.requestBody && shown(spec, about.requestBody.content["application/json"].schema);
    if (body) says.body = body.properties;
    for (const [status, one] of Object.entries(about.responses)) {{
      const given = one.content && one.content["application/json"];
      if (given && status !== "default") says[status] = shown(spec, given.schema).properties;
    }}
    box.querySelector("pre").textContent = JSON.stringify(says, null, 2);
  }}
}});
</script>
</html>
"""
_ROUTE = (
    '<details data-path="{path}" data-method="{method}"><summary><b>{shown}</b> <code>{path}</code> {summary}'
    "</summary><p>{requirement}</p><pre></pre></details>"
)


class RouteGroup(Struct, frozen=True, kw_only=True):
    """The routes of one front door, and what they have in common.

    ``scheme`` is the OpenAPI security scheme of its callers. ``requirements`` has a sentence for each scope; scopes
    without one are open to everybody. Requests that change something need ``change_headers``.
    """

    routes: Sequence[Route]
    error_type: type
    scheme_name: str
    scheme: Mapping[str, str]
    requirements: Mapping[str, str]
    change_headers: tuple[str, ...] = ()

    def describe_requirement(self, route: Route) -> str:
        """Return what a caller needs for a route; empty if anybody may use it."""
        return self.requirements.get(route.scope, "") if route.scope is not None else ""


def build_openapi(groups: Sequence[RouteGroup], version: str) -> Mapping[str, Any]:
    """Return the document."""
    kinds = {
        kind
        for group in groups
        for route in group.routes
        for kind in (route.takes, route.asks, route.reply_type, route.events, group.error_type)
        if kind is not None
    }
    ordered = sorted(kinds, key=lambda kind: getattr(kind, "__name__", str(kind)))
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for group in groups:
        for route in group.routes:
            operation = _build_operation(group, route, found, components)
            paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Talaria",
            "version": version,
            "description": "Talaria's HTTP API, compatible with OpenAI clients, and the routes of its web app.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {group.scheme_name: group.scheme for group in groups},
        },
    }


def _build_operation(
    group: RouteGroup, route: Route, schemas: Mapping[Any, Any], components: Mapping[str, Any]
) -> Mapping[str, Any]:
    requirement = group.describe_requirement(route)
    operation: dict[str, Any] = {
        "operationId": _make_operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "security": [{group.scheme_name: []}] if requirement else [],
        "parameters": [
            *_list_path_parameters(route),
            *_list_query_parameters(route, schemas, components),
            *_list_header_parameters(group, route),
        ],
        "responses": _build_responses(group, route, schemas),
    }
    if requirement:
        operation["description"] = requirement
    if route.takes is not None:
        body = {"application/json": {"schema": schemas[route.takes]}}
        operation["requestBody"] = {"required": True, "content": body}
    elif route.body_limit:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _build_responses(group: RouteGroup, route: Route, schemas: Mapping[Any, Any]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    if route.reply_type is not None:
        content["application/json"] = {"schema": schemas[route.reply_type]}
    if route.sends_file:
        content[FILE] = {"schema": {"type": "string", "format": "binary"}}
    if route.events is not None:  # as in OpenAI's own description: the schema of the data of one event
        content["text/event-stream"] = {"schema": schemas[route.events]}
    success: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if content:
        success["content"] = content
    error = {"application/json": {"schema": schemas[group.error_type]}}
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


def _list_header_parameters(group: RouteGroup, route: Route) -> list[Mapping[str, Any]]:
    required = group.change_headers if route.method in _UNSAFE else ()
    names = sorted({*required, *route.used_headers, *([HEADER] if route.repeatable else ())})
    return [
        {"name": name, "in": "header", "required": name in required, "description": description, "schema": schema}
        for name in names
        for description, schema in (_HEADERS[name],)
    ]


def _make_operation_id(route: Route) -> str:
    description = re.findall(r"\w+", route.path.removeprefix("/v1"))
    return "_".join((route.method.lower(), *description))


def render_docs_page(groups: Sequence[RouteGroup], version: str) -> bytes:
    """Return the page for these routes."""
    parts = []
    for group in groups:
        ordered = sorted(group.routes, key=lambda route: (route.tag == "about", route.tag))
        for tag, routes in groupby(ordered, key=lambda route: route.tag):
            rendered = "\n".join(_render_route(group, route) for route in routes)
            parts.append(f"<h2>{html.escape(tag)}</h2>\n{rendered}")
    return _PAGE.format(version=html.escape(version), groups="\n".join(parts)).encode()


def _render_route(group: RouteGroup, route: Route) -> str:
    requirement = html.escape(group.describe_requirement(route) or "Open to everybody.")
    return _ROUTE.format(
        path=html.escape(route.path.replace("*}", "}")),
        method=route.method.lower(),
        shown=route.method,
        summary=html.escape(route.summary),
        requirement=_CODE.sub(r"<code>\1</code>", requirement),
    )
