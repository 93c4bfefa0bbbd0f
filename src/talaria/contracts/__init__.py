"""What adapters implement: stores now; platforms, providers and tools as they come."""
