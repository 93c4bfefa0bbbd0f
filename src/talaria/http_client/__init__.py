"""HTTP client of all adapters: connections, proxies, time-outs, server-sent events, limits."""
