"""A small MCP server without the SDK, which starts in a twentieth of its time: ``plain_server.py``, over stdio.

For tests about the process of a server. Those of the protocol use the SDK's server (`mcp_server.py`). Its tool `grow`
adds a tool and reports that, and `hang` makes it ignore everything from then on.
"""

import itertools
import json
import os
import sys
from typing import Any

_NUMBERS = itertools.count(1)
_TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("count", "pid", "grow", "hang")
]
_PROMPTS = [
    {
        "name": "greet",
        "description": "Greet a person",
        "arguments": [{"name": "who", "required": True}, {"name": "how"}],
    }
]
_CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    match method:
        case "initialize":
            about = {"name": "counter", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": _CAPABILITIES, "serverInfo": about}
        case "tools/list":
            return {"tools": _TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": call(params["name"])}]}
        case "prompts/list":
            return {"prompts": _PROMPTS}
        case "prompts/get":
            text = f"Greet {params['arguments']['who']} {params['arguments'].get('how', 'kindly')}."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        case _:
            return {}


def call(name: str) -> str:
    """Run a tool."""
    if name == "grow":
        _TOOLS.append({**_TOOLS[0], "name": f"extra{len(_TOOLS)}", "description": "A new one"})
        write({"method": "notifications/tools/list_changed"})
        return "grown"
    return f"{next(_NUMBERS)} in {os.getpid()}" if name == "count" else str(os.getpid())


def write(message: dict[str, Any]) -> None:
    """Send a message to the client."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer requests until the input ends; notifications need no answer."""
    is_hanging = False
    for line in sys.stdin:
        request = json.loads(line)
        is_hanging = is_hanging or request.get("params", {}).get("name") == "hang"
        if "id" in request and not is_hanging:
            write({"id": request["id"], "result": answer(request["method"], request.get("params", {}))})


if __name__ == "__main__":
    main()
