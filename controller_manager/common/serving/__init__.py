"""HTTPS servers: certificates, sockets, authentication, authorization and health. Handlers live elsewhere."""
