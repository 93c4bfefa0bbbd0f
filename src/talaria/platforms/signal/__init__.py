"""Signal: direct and group chats of a phone number, over signal-cli's JSON-RPC daemon."""
