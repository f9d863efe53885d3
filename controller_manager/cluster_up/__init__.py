"""`cluster-up`: an API server and controller managers as child processes of one that watches over them."""
