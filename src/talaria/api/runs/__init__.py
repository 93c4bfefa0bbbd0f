"""Durable runs: started by a client, processed by any server, followed from any point."""
