"""The agent as an MCP server: routes of the API as tools for other agents."""
