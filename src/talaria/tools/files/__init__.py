"""Files of this machine: read, write, edit, search and list them."""
