"""Authorization: a chain of callables, each of which allows, denies or has no opinion."""
