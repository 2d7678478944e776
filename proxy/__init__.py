"""The proxy: a core without I/O, and the shell that turns sockets into its events."""
