"""Client connections in the shell: ports, sockets, and a core between each two."""
