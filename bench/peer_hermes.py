"""Hermes Agent as a peer: installed into a virtual environment of its own, and pointed at a model server."""

import subprocess
import sys
from pathlib import Path

PACKAGE = "hermes-agent==0.19.0"

_FOLDER = Path(__file__).parent.parent / ".bench" / "hermes"
_SETTINGS = """\
model:
  provider: custom
  default: scripted
  base_url: {url}/v1
  api_key: none
  context_length: 128000
"""


def install() -> str:
    """Return the path of its command, having installed it where that was not done before."""
    command = _FOLDER / "bin" / "hermes"
    if not command.exists():
        print(f"Installing {PACKAGE} into {_FOLDER}: 228 MB, a few minutes.", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", _FOLDER], check=True)
        subprocess.run([_FOLDER / "bin" / "pip", "install", "--quiet", PACKAGE], check=True)
    return str(command)


def prepare(home: Path, url: str) -> dict[str, str]:
    """Make a home whose settings name the model server at ``url``, and return the environment that chooses it."""
    home.mkdir()
    (home / "config.yaml").write_text(_SETTINGS.format(url=url))
    return {"HERMES_HOME": str(home), "HOME": str(home)}
