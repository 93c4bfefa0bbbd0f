"""Web browser of a session: a detached Chromium, its guarded network, the connection to it, and the tools."""
