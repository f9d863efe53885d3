"""What a manager serves about itself: a handler by path, each made from what it shows."""
