"""Routes of the web app's management pages: people, settings, models and tools."""

from functools import partial

from talaria.app.application import TalariaApplication
from talaria.app.models import ProfileModels
from talaria.app.settings_reload import reload_settings
from talaria.app.setup.probes import ProfileSetup
from talaria.contracts.mcp import ServerState
from talaria.http.routing import Route
from talaria.web.routes.model_choice import ModelChoiceRoutes
from talaria.web.routes.people import PeopleRoutes
from talaria.web.routes.settings import SettingsRoutes
from talaria.web.routes.tools import ToolRoutes


def build_management_routes(app: TalariaApplication) -> tuple[Route, ...]:
    """Return the routes of the pages with which the agent is managed."""
    reload = partial(reload_settings, app)
    models = ModelChoiceRoutes(
        app.models,
        ProfileSetup(app.profile, app.environment),
        app.profile,
        app.environment,
        reload=reload,
        install=ProfileModels(app.settings, app.secrets, app.profile.folder).install_embedded,
    )
    return (
        *PeopleRoutes(app.store, app, app.profile).routes(),
        *SettingsRoutes(app.profile, app.environment, reload).routes(),
        *models.routes(),
        *ToolRoutes(app, partial(_try_mcp_server, app)).routes(),
    )


async def _try_mcp_server(app: TalariaApplication, name: str) -> ServerState:
    """Connect to a server of the settings, list what it offers and disconnect."""
    from talaria.app.session.mcp_servers import try_server  # noqa: PLC0415 (loaded when a server is tested)

    return await try_server(name, app.settings.mcp[name], app.secrets, app.profile)
