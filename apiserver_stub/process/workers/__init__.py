"""Several processes that together are one API server: who starts and watches them, and what they tell each other."""
