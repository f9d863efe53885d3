"""What every process is made of; all that the API server imports of this package."""
