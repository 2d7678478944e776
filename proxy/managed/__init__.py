"""Managed topics in the shell: writing, reading and asking on behalf of clients, by the layouts in force."""
