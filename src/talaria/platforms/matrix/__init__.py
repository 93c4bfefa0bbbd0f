"""Matrix: rooms and direct chats on a homeserver, encrypted ones with the extra `matrix-e2e`."""
