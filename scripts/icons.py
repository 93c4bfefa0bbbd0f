"""Draw the icons of the installed web app from `icon.svg`, with Chromium: `python -m scripts.icons`."""

import asyncio
import base64
import shutil
from pathlib import Path

from playwright.async_api import Browser, async_playwright

STATIC = Path(__file__).parents[1] / "src" / "talaria" / "web" / "static"
_BACKGROUND = "#8a4b2d"
_SAFE = 0.78  # the part of a maskable icon that is visible in every shape


async def draw(browser: Browser, size: int, *, maskable: bool) -> bytes:
    """Return the icon as a PNG; a maskable one has colour up to its edges."""
    page = await browser.new_page(viewport={"width": size, "height": size})
    image = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    width = round(size * _SAFE) if maskable else size
    colour = _BACKGROUND if maskable else "transparent"
    await page.set_content(
        f'<body style="margin:0;background:{colour};display:grid;place-items:center;height:100vh">'
        f'<img width="{width}" src="data:image/svg+xml;base64,{image}">'
    )
    drawn = await page.screenshot(omit_background=not maskable)
    await page.close()
    return drawn


async def main() -> None:
    """Write all icons."""
    folder = STATIC / "icons"
    folder.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for size in (192, 512):
            (folder / f"icon-{size}.png").write_bytes(await draw(browser, size, maskable=False))
        (folder / "maskable-512.png").write_bytes(await draw(browser, 512, maskable=True))
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
