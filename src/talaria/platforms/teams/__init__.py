"""Microsoft Teams: a bot in personal chats, group chats and channels, over the Bot Connector service."""
