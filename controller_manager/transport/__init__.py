"""Floor 3: connections to servers and streams over them, for the client and for servers that call other servers."""
