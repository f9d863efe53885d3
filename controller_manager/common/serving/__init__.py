"""Serving HTTPS: certificates, sockets, health and who may see it; what is served lives elsewhere."""
