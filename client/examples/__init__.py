"""Programs that show how the SDK is used; each runs as `python -m kordon.client.examples.<name>`."""
