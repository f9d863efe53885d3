"""One storage for several processes: its owner serves it on a Unix socket, and the others use it through a client."""
