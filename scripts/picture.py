"""Draw the picture of the terminal chat for the documentation, from a real run with a scripted model."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from talaria.testing.model_server import Ask, ModelServer, Say, Tokens
from talaria.testing.screen import Screen, open_screen
from talaria.testing.terminal_svg import draw

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
TITLE = "talaria"
COLUMNS, ROWS = 92, 24
PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
STILL_SECONDS = 0.7

FOLDER = "tides"
FILES = {
    "tides.py": """\
from datetime import datetime, timedelta

def next_high_tide(last: datetime) -> datetime:
    return last + timedelta(hours=12)
""",
    "harbour.csv": "harbour,last high tide\nSaint-Malo,2026-03-20 19:42\n",
}
ANSWERS = (
    Say(calls=[Ask("read_file", {"path": "tides.py"})], usage=Tokens(input=5210, output=48)),
    Say(
        """\
It adds half a **solar** day, but tides follow the moon: two high tides are *12 h 25 min* apart. So `next_high_tide` is
50 minutes early after a day.

```python
LUNAR_DAY = timedelta(hours=24, minutes=50)

def next_high_tide(last: datetime) -> datetime:
    return last + LUNAR_DAY / 2
```

- Saint-Malo: **08:07**, not 07:42
- the error grows by 25 minutes with each tide

Should I change the file?
""",
        usage=Tokens(input=212, output=164, cache_read=5258),
    ),
    Say("Early tides"),
)
FIRST_RUN = (("wait", "talaria setup"),)  # the welcome is shown only once
SECOND_RUN = (
    ("wait", PROMPT),
    ("type", "Why are the times in tides.py too early?"),
    ("press", "enter"),
    ("wait", "Should I change the file?"),
    ("wait until still", STILL_SECONDS),
)


def main() -> None:
    """Run the steps and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE, help="file for the picture")
    file: Path = parser.parse_args().file
    picture = asyncio.run(_draw_picture())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture)


async def _draw_picture() -> str:
    with TemporaryDirectory() as temporary:
        home = Path(temporary)
        folder = home / FOLDER
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        async with ModelServer() as server:
            server.script(*ANSWERS)
            environment = _environment(home, server.url)
            command = [str(Path(sys.executable).parent / "talaria")]
            for steps in (FIRST_RUN, SECOND_RUN):
                async with open_screen(command, env=environment, columns=COLUMNS, rows=ROWS, cwd=folder) as screen:
                    for action, value in steps:
                        await _run_step(screen, action, value)
                    picture = draw(screen.styled, title=TITLE, cursor=screen.cursor)
            return picture


def _environment(home: Path, url: str) -> dict[str, str]:
    """Create a profile that uses the scripted model, and return its environment."""
    profile = home / ".talaria" / "profiles" / "default"
    profile.mkdir(parents=True)
    (profile / "config.toml").write_text(
        f'[model]\nprovider = "scripted"\nname = "scripted"\n[providers.scripted]\nbase_url = "{url}/v1"\n'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(home),
        "TALARIA_HOME": str(home / ".talaria"),
        "LANG": "C.UTF-8",
        "COLORTERM": "truecolor",
    }


async def _run_step(screen: Screen, action: str, value: object) -> None:
    match action, value:
        case "wait", str():
            await screen.wait_for(value)
        case "type", str():
            await screen.type(value)
        case "press", str():
            await screen.press(value)
        case "wait until still", float():
            await _wait_until_still(screen, value)
        case _:
            raise AssertionError(f"Unknown step: {action} {value!r}.")


async def _wait_until_still(screen: Screen, seconds: float) -> None:
    """Wait until the screen hasn't changed for this time."""
    left = seconds
    while left > 0:
        await asyncio.sleep(left)
        left = screen.changed_at + seconds - perf_counter()


if __name__ == "__main__":
    main()
