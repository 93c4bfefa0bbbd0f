"""Desktop clipboard, where available; copying also works through the terminal itself."""

import asyncio
import base64
import shutil
import tempfile
from pathlib import Path

from talaria.core.messages import Image

_TIMEOUT_SECONDS = 3.0
_TEXT_COMMANDS = (
    ("wl-paste", "--no-newline", "--type", "text/plain"),
    ("xclip", "-selection", "clipboard", "-out"),
    ("pbpaste",),
)
_PICTURE_COMMANDS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_PNG = b"\x89PNG\r\n"


def copy_sequence(text: str) -> str:
    """Return the escape sequence (OSC 52) that copies text to the clipboard, also over SSH."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"


async def read_clipboard(folder: Path) -> str | Image | None:
    """Return the clipboard's image, saved as a file in ``folder``, or its text; ``None`` if empty."""
    content = await _read_first(_PICTURE_COMMANDS)
    if content.startswith(_PNG):
        return Image(str(_save_picture(content, folder)), "image/png")
    return (await _read_first(_TEXT_COMMANDS)).decode(errors="replace") or None


def _save_picture(picture: bytes, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="pasted-", suffix=".png", delete=False) as file:
        file.write(picture)
    return Path(file.name)


async def _read_first(commands: tuple[tuple[str, ...], ...]) -> bytes:
    """Return the output of the first installed program; empty if it fails or takes too long."""
    command = next((one for one in commands if shutil.which(one[0])), None)
    if command is None:
        return b""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return out if process.returncode == 0 else b""
