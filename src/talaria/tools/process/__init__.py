"""Background processes that outlive their turn."""
