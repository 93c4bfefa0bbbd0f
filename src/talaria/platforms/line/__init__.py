"""LINE: an official account of the Messaging API, in private chats, groups and rooms."""
