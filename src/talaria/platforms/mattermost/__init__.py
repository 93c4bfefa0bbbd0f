"""Mattermost: direct messages, channels and threads of a bot account, over its REST API and websocket."""
