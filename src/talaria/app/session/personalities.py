"""Personalities of the agent, from files and built-in texts, and personas, from the settings."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from talaria.core.errors import NotFound
from talaria.runtime.open_session import OpenRequest
from talaria.settings.atomic_files import read_file
from talaria.settings.model import Settings, SurfaceSettings

BUILT_IN: Mapping[str, str] = {
    "concise": "Answer as briefly as possible: no preamble, no repetition, no summary at the end.",
    "teacher": "Teach: explain the idea first, then give one small example, and end with a question to try.",
    "reviewer": "Look for problems first. Say what fails, where, how you know, and how to fix it.",
    "pirate": "Speak like an old sea captain, but keep every fact, number, path and piece of code exact.",
}


def read_personality(folder: Path, name: str) -> str:
    """Return the text of a personality: a file of the profile, or a built-in one.

    Raises `NotFound` if there is neither.
    """
    own = read_file(folder / "personalities" / f"{name}.md")
    if own is not None:
        return own.decode(errors="replace").strip()
    if name not in BUILT_IN:
        raise NotFound(f"There is no personality `{name}`. Available: {', '.join(sorted(personalities(folder)))}.")
    return BUILT_IN[name]


def personalities(folder: Path) -> Mapping[str, str]:
    """Return the first line of each personality, by name."""
    own = {file.stem: read_personality(folder, file.stem) for file in (folder / "personalities").glob("*.md")}
    return {name: text.partition("\n")[0] for name, text in sorted({**BUILT_IN, **own}.items())}


def apply_persona(settings: Settings, request: OpenRequest, stored: str) -> tuple[Settings, OpenRequest]:
    """Return the settings and the request of a session of a persona: the ``stored`` one, or that of the request.

    A persona that is no longer in the settings has become the agent itself.
    """
    name = stored or request.persona
    persona = settings.personas.get(name)
    if persona is None:
        return settings, structs.replace(request, persona="")
    surface = request.surface.source
    tools, surfaces, model, memory = settings.tools, settings.surfaces, settings.model, settings.memory
    if persona.toolsets:
        tools = structs.replace(tools, toolsets=persona.toolsets)
        own = structs.replace(surfaces.get(surface) or SurfaceSettings(), toolsets=persona.toolsets)
        surfaces = {**surfaces, surface: own}
    if persona.model:
        first, colon, rest = model.aliases.get(persona.model, persona.model).partition(":")
        model = structs.replace(model, provider=first if colon else model.provider, name=rest if colon else first)
    if persona.memory == "own":
        memory = structs.replace(memory, space=name)
    servers = settings.mcp if persona.mcp else {}
    settings = structs.replace(settings, tools=tools, surfaces=surfaces, model=model, memory=memory, mcp=servers)
    return settings, structs.replace(request, persona=name, identity=request.identity or persona.instructions)
