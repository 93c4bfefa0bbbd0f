"""Reads documents in a process of their own, and remembers the last ones."""

import asyncio
import hashlib
import os
import signal
import sys
from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from talaria.core.errors import ToolFailed
from talaria.tools.documents.wire import OLD_OFFICE, Extracted, ExtractRequest

_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_SECONDS = 30  # of CPU
_PATIENCE = 180.0  # seconds; a machine may be busy
_REMEMBERED = 8
_Key = tuple[str, int, int, str, int]


class DocumentReader:
    """Converts documents to text; pictures of pages without text are stored below ``pictures``, if it is given."""

    def __init__(self, pictures: Path | None = None) -> None:
        self._pictures = pictures
        self._read: OrderedDict[_Key, Extracted] = OrderedDict()

    async def read(self, path: Path, parts: str = "", first_line: int = 1) -> Extracted:
        """Return text of a document that contains a line, or raise `ToolFailed` with the reason."""
        state = await asyncio.to_thread(path.stat)
        about = (str(path), state.st_mtime_ns, state.st_size, parts)
        key = next((one for one, found in self._read.items() if one[:-1] == about and found.has(first_line)), None)
        if key is None:
            key = (*about, first_line)
            self._read[key] = await self._extract(path, parts, repr(about), first_line)
            while len(self._read) > _REMEMBERED:
                self._read.popitem(last=False)
        self._read.move_to_end(key)
        return self._read[key]

    async def _extract(self, path: Path, parts: str, name: str, first_line: int) -> Extracted:
        await asyncio.to_thread(_refuse_old_office, path)
        folder = await _make_folder(self._pictures, hashlib.sha256(name.encode()).hexdigest())
        found = await _run(ExtractRequest(str(path), parts, folder, _SECONDS, first_line=first_line))
        if folder and not found.pictures:
            await asyncio.to_thread(_remove_empty, Path(folder))
        if found.error:
            raise ToolFailed(f"{path} can't be read: {found.error}.")
        return found


async def read_downloaded(body: bytes, name: str, pictures: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the text of a downloaded document, under its title, and images of pages without text in ``pictures``.

    Raises `ToolFailed` if it can't be read, or has no text and no images are requested.
    """
    with TemporaryDirectory(prefix="talaria-") as folder:
        path = Path(folder) / name
        await asyncio.to_thread(path.write_bytes, body)
        target = await _make_folder(pictures, hashlib.sha256(body).hexdigest())
        found = await _run(ExtractRequest(str(path), folder=target, seconds=_SECONDS))
    if target and not found.pictures:
        await asyncio.to_thread(_remove_empty, Path(target))
    if found.error:
        raise ToolFailed(f"the {found.kind or 'document'} can't be read: {found.error}")
    if not found.has_text and not found.pictures:
        raise ToolFailed(f"the {found.kind} contains no text; its pages are images")
    rest = f"{found.unit}s from {found.next_part} on are" if found.next_part else "the rest is"
    more = f"[{rest} left out: the document is too long]" if found.next_part or found.next_line else ""
    text = "\n\n".join(filter(None, (found.title and f"# {found.title}", found.text, more)))
    return text, found.pictures


async def draw_page(path: Path, page: int) -> bytes:
    """Return a page of a PDF as an image, or raise `ToolFailed`."""
    with TemporaryDirectory(prefix="talaria-") as folder:
        found = await _run(ExtractRequest(str(path), str(page), folder, _SECONDS, draws_all=True))
        if found.error or not found.pictures:
            raise ToolFailed(f"page {page} of {path} can't be drawn: {found.error or 'only PDFs have pages to see'}")
        return await asyncio.to_thread(Path(found.pictures[0]).read_bytes)


async def _make_folder(pictures: Path | None, name: str) -> str:
    """Return a folder for the images of one document; empty if no images are requested."""
    if pictures is None:
        return ""
    target = pictures / name[:16]
    await asyncio.to_thread(target.mkdir, 0o700, parents=True, exist_ok=True)
    return str(target)


async def _run(request: ExtractRequest) -> Extracted:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "talaria.tools.documents.extract",
        msgspec.json.encode(request).decode(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath},
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            output, _ = await process.communicate()
    except TimeoutError:
        return Extracted(error="it takes too long")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        slow = process.returncode in {-signal.SIGXCPU, -signal.SIGKILL}
        return Extracted(error="it takes too long" if slow else "the file is damaged, or needs too much memory")
    return msgspec.json.decode(output, type=Extracted)


def _refuse_old_office(path: Path) -> None:
    with path.open("rb") as file:
        beginning = file.read(len(OLD_OFFICE))
        if beginning != OLD_OFFICE:
            return
        file.seek(0)
        encrypted = _ENCRYPTED in file.read(1_000_000)
    if encrypted:
        raise ToolFailed(f"{path} can't be read: it is encrypted with a password.")
    raise ToolFailed(
        f"{path} has the old format of Office (before 2007). Convert it first, for example with"
        " `libreoffice --headless --convert-to docx`."
    )


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
