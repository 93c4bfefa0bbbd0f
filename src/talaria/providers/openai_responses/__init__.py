"""The Responses protocol of OpenAI, without state on the server."""
