"""XMPP: direct chats and rooms over TLS, with the server's archive for missed messages."""
