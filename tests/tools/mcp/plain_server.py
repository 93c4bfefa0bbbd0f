"""A small MCP server without the SDK, which starts in a twentieth of its time: ``plain_server.py``, over stdio.

For tests about the process of a server. Those of the protocol use the SDK's server (`mcp_server.py`).
"""

import itertools
import json
import os
import sys
from typing import Any

_NUMBERS = itertools.count(1)
_TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("count", "pid")
]


def answer(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    match method:
        case "initialize":
            about = {"name": "counter", "version": "1"}
            return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": _TOOLS}
        case "tools/call":
            text = f"{next(_NUMBERS)} in {os.getpid()}" if given["name"] == "count" else str(os.getpid())
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return {}


def main() -> None:
    """Answer requests until the input ends; notifications need no answer."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(request["method"], request.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
