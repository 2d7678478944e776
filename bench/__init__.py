"""What Kordon costs, measured side by side with the same traffic sent directly."""
