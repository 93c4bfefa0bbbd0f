"""Google Chat: an app in direct messages and spaces of a Google Workspace, called over HTTP."""
