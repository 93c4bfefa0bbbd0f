"""The documentation page: a single HTML page without external resources."""

import html
from collections.abc import Sequence
from itertools import groupby

from talaria.http.router import Route

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
    "</summary><p>{scope}</p><pre></pre></details>"
)


def render_docs_page(routes: Sequence[Route], version: str) -> bytes:
    """Return the page for these routes."""
    ordered = sorted(routes, key=lambda route: (route.tag == "about", route.tag))
    groups = []
    for tag, group in groupby(ordered, key=lambda route: route.tag):
        rendered = "\n".join(map(_render_route, group))
        groups.append(f"<h2>{html.escape(tag)}</h2>\n{rendered}")
    return _PAGE.format(version=html.escape(version), groups="\n".join(groups)).encode()


def _render_route(route: Route) -> str:
    scope = f"Requires the scope <code>{route.scope}</code>." if route.scope else "No key required."
    return _ROUTE.format(
        path=html.escape(route.path.replace("*}", "}")),
        method=route.method.lower(),
        shown=route.method,
        summary=html.escape(route.summary),
        scope=scope,
    )
