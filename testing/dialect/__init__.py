"""Clients of the dialect that do exactly what a test tells them."""
