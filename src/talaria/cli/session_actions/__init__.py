"""What `talaria sessions` can do, a module for each kind of action, loaded when it is asked for."""
