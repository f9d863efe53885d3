"""The handler chain, and what the server says about itself."""
