"""WhatsApp: a business number of the Cloud API, in private chats."""
