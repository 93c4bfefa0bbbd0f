"""Gateway: receives messages from chat networks, dispatches them to sessions and delivers replies."""
