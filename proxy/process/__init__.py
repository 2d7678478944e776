"""A process of Kordon: its parts put together, its admin pages, and several workers as one."""
