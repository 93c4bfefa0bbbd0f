"""HTTP client for providers: connections, proxies, time-outs, server-sent events, limits."""
