"""The built-in controllers, one module each; a module joins by declaring `SPECS`."""
