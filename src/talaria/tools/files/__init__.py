"""Files on this machine: read, write, edit, search and list."""
