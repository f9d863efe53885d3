"""Who may see what a manager serves: callers are known and allowed by the API server."""
