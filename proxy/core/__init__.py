"""The core of a connection, without I/O: bytes of a client and of its broker in, commands for sockets out."""
