"""Send files and messages to chats."""
