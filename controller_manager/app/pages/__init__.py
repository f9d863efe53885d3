"""The pages of a manager: a handler by path, each made from what it shows."""
