"""Authorization: a chain of authorizers that allow, deny or have no opinion."""
