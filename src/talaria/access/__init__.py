"""Access control: owners, allow-lists, pairing codes, API keys and command permissions."""
