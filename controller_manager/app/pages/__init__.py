"""The web pages of a manager, with one handler per path."""
