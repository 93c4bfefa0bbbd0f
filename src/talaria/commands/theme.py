"""`/theme`: the colours of the terminal."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of

AUTO = "auto"
THEMES = {
    AUTO: "as the terminal is",
    "dark": "for a dark background",
    "light": "for a light background",
    "mono": "without colours",
}


async def run(errand: Errand) -> None:
    """Choose a theme and keep it, or say which one it is."""
    screen = screen_of(errand)
    if not errand.words:
        errand.place.show(f"The theme is `{screen.theme}`; there are {', '.join(f'`{name}`' for name in THEMES)}.")
        return
    if errand.words != AUTO:
        screen.change_theme(errand.words)
    errand.house.settings_rack.change("cli.theme", errand.words)
    when = "From the next start on the theme is" if errand.words == AUTO else "From now on the theme is"
    errand.place.show(f"{when} `{errand.words}`.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the themes."""
    return list(THEMES.items())


COMMAND = Command(
    name="theme",
    category="Display",
    help="Choose the colours of the terminal.",
    hint="[auto|dark|light|mono]",
    where="terminal",
    run=run,
    offers=offers,
)
