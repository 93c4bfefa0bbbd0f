"""`/version`: which Talaria this is."""

from talaria.commands.command import Command, Errand


async def run(errand: Errand) -> None:
    """Say the version."""
    errand.place.show(f"Talaria {errand.house.identity.version}")


COMMAND = Command(
    name="version", category="Program", help="Show which version of Talaria this is.", run=run, reads=True
)
