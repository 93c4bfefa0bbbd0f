"""Live chats of a worker: open sessions, commands, questions and views of running turns."""
