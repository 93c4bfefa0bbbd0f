"""Durable runs: started by a client, worked on by whichever server is there, followed from any point."""
