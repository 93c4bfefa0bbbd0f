"""The turn loop: call the model, run its tools, until there is an answer or a limit."""
