"""Follows the project's pages as a reader would, and draws what they show."""
