"""Tools, resources and prompts of Model Context Protocol (MCP) servers."""
