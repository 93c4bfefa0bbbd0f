"""Discovery of a profile's hooks, without running any of their code."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.contracts.hooks import GATEWAY_START
from talaria.hooks.manifest import MANIFEST, BrokenHook, HookManifest, read_manifest

FOLDER = "hooks"
HANDLER = "handler.py"
BOOT, BOOT_FILE = "boot", "BOOT.md"


class Hook(Struct, frozen=True):
    """A usable hook and its folder."""

    folder: Path
    manifest: HookManifest

    @property
    def handler(self) -> Path:
        """Path of handler.py, for hooks without a command."""
        return self.folder / HANDLER


class UnusableHook(Struct, frozen=True):
    """A folder with an invalid hook; ``problem`` names the file and the line."""

    folder: Path
    problem: str


class HookSummary(Struct, frozen=True, kw_only=True):
    """A hook for display; ``problem`` is set for a broken one, and ``run`` is empty if a handler.py handles events."""

    name: str
    state: Literal["on", "off", "broken"]
    path: Path
    description: str = ""
    events: tuple[str, ...] = ()
    run: str = ""
    timeout_seconds: float | None = None
    problem: str = ""


def summarize_hooks(profile_folder: Path) -> list[HookSummary]:
    """Return all hooks of a profile for display, the built-in one first."""
    boot = profile_folder / BOOT_FILE
    built_in = HookSummary(
        name=BOOT,
        state="on" if boot.is_file() else "off",
        path=boot,
        description=f"Runs the prompt in {BOOT_FILE}, if there is one",
        events=(GATEWAY_START,),
    )
    return [built_in, *map(_summarize, find_hooks(profile_folder / FOLDER))]


def _summarize(found: Hook | UnusableHook) -> HookSummary:
    if isinstance(found, UnusableHook):
        return HookSummary(name=found.folder.name, state="broken", path=found.folder, problem=found.problem)
    manifest = found.manifest
    return HookSummary(
        name=manifest.name,
        state="on" if manifest.enabled else "off",
        path=found.folder,
        description=manifest.description,
        events=manifest.events,
        run=manifest.run,
        timeout_seconds=manifest.timeout_seconds,
    )


def find_hooks(folder: Path) -> list[Hook | UnusableHook]:
    """Return the hooks in a folder, sorted by folder name; none if the folder is missing."""
    names = {BOOT: "the built-in hook"}
    return [_read_hook(one, names) for one in _iterate_folders(folder)]


def _iterate_folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(one.parent for one in folder.glob(f"*/{MANIFEST}"))


def _read_hook(folder: Path, names: dict[str, str]) -> Hook | UnusableHook:
    try:
        hook = Hook(folder, read_manifest(folder / MANIFEST))
        _check_name(hook, names)
        _check_handler(hook)
    except BrokenHook as error:
        return UnusableHook(folder, str(error))
    names[hook.manifest.name] = f"the hook in {folder.name}"
    return hook


def _check_name(hook: Hook, names: dict[str, str]) -> None:
    name = hook.manifest.name
    if name in names:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"the name `{name}` is already used by {names[name]}.")


def _check_handler(hook: Hook) -> None:
    """Raise `BrokenHook` unless there is exactly one handler, and it has no obvious error."""
    has_file = hook.handler.is_file()
    if hook.manifest.run and has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"it has both `run:` and a file {HANDLER}; remove one.")
    if not hook.manifest.run and not has_file:
        raise BrokenHook(hook.folder / MANIFEST, 1, f"it has neither `run:` nor a file {HANDLER}.")
    if has_file:
        _check_file(hook.handler)


def _check_file(file: Path) -> None:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise BrokenHook(file, error.lineno or 1, f"{error.msg}.") from error
    except (OSError, ValueError) as error:
        raise BrokenHook(file, 1, f"it can't be read: {error}.") from error
    if not any(_binds_handle(node) for node in ast.walk(tree)):
        raise BrokenHook(file, 1, "it has no function `handle(event, facts)`.")


def _binds_handle(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="handle") | ast.AsyncFunctionDef(name="handle"):
            return True
        case ast.Name(id="handle", ctx=ast.Store()) | ast.alias(name="handle") | ast.alias(asname="handle"):
            return True
    return False
