"""Discord: a bot in private chats, servers, threads and forums."""
