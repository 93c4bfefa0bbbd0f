"""Which hooks a profile has: looked at, but nothing of them is run yet."""

import ast
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from talaria.hooks.manifest import MANIFEST, BrokenHook, Manifest, read_manifest

FOLDER = "hooks"
HANDLER = "handler.py"
BOOT, BOOT_FILE = "boot", "BOOT.md"


class Hook(Struct, frozen=True):
    """A hook that can be used, and its folder."""

    folder: Path
    manifest: Manifest

    @property
    def handler(self) -> Path:
        """The file with what handles its events, where that is not a command."""
        return self.folder / HANDLER


class Unusable(Struct, frozen=True):
    """A folder with something wrong in it; ``problem`` names the file and the line."""

    folder: Path
    problem: str


def look_through(folder: Path) -> list[Hook | Unusable]:
    """Return the hooks below a folder, sorted by the names of their folders; none where there is no such folder."""
    taken = {BOOT: "the hook that is built in"}
    return [_looked_at(one, taken) for one in _folders(folder)]


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(one.parent for one in folder.glob(f"*/{MANIFEST}"))


def _looked_at(folder: Path, taken: dict[str, str]) -> Hook | Unusable:
    try:
        hook = Hook(folder, read_manifest(folder / MANIFEST))
        _check_name(hook, taken)
        _check_handler(hook)
    except BrokenHook as error:
        return Unusable(folder, str(error))
    taken[hook.manifest.name] = f"the hook in {folder.name}"
    return hook


def _check_name(hook: Hook, taken: dict[str, str]) -> None:
    name = hook.manifest.name
    if name in taken:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"`{name}` is the name of {taken[name]} already.")


def _check_handler(hook: Hook) -> None:
    """Raise `BrokenHook` unless there is exactly one way to handle its events, without a fault on the face of it."""
    has_file = hook.handler.is_file()
    if hook.manifest.run and has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"there is `run:` here and {HANDLER} beside it; remove one.")
    if not hook.manifest.run and not has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"there is neither {HANDLER} beside it nor `run:` in it.")
    if has_file:
        _check_file(hook.handler)


def _check_file(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise BrokenHook(file, error.lineno or 1, f"{error.msg}.") from error
    except (OSError, ValueError) as error:
        raise BrokenHook(file, 1, f"it cannot be read: {error}.") from error
    if not any(_binds_handle(node) for node in ast.walk(tree)):
        raise BrokenHook(file, 1, "there is no function `handle(event, facts)` in it.")


def _binds_handle(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="handle") | ast.AsyncFunctionDef(name="handle"):
            return True
        case ast.Name(id="handle", ctx=ast.Store()) | ast.alias(name="handle") | ast.alias(asname="handle"):
            return True
    return False
