"""Front door: an HTTP server that speaks OpenAI's protocols."""
