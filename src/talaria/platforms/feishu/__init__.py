"""Feishu and Lark: a bot in private chats and groups, with encrypted events and cards."""
