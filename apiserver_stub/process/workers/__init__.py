"""Several worker processes that form one API server: supervision and the messages between them."""
