"""The clipboard of the desktop, where there is one; copying also works through the terminal itself."""

import asyncio
import base64
import shutil
import tempfile
from pathlib import Path

from talaria.core.messages import Image

_SECONDS = 3.0
_TEXT = (
    ("wl-paste", "--no-newline", "--type", "text/plain"),
    ("xclip", "-selection", "clipboard", "-out"),
    ("pbpaste",),
)
_PICTURE = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_PNG = b"\x89PNG\r\n"


def copy_sequence(text: str) -> str:
    """Return what makes a terminal put text into its clipboard (OSC 52), also over ssh."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"


async def read_clipboard(folder: Path) -> str | Image | None:
    """Return what the clipboard holds: a picture, which is kept as a file in ``folder``, or text."""
    held = await _first(_PICTURE)
    if held.startswith(_PNG):
        return Image(str(_kept(held, folder)), "image/png")
    return (await _first(_TEXT)).decode(errors="replace") or None


def _kept(picture: bytes, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="pasted-", suffix=".png", delete=False) as file:
        file.write(picture)
    return Path(file.name)


async def _first(commands: tuple[tuple[str, ...], ...]) -> bytes:
    """Return what the first of these programs that is installed prints."""
    command = next((one for one in commands if shutil.which(one[0])), None)
    if command is None:
        return b""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return out if process.returncode == 0 else b""
