"""What the proxy does that leads: changes of layouts, takeovers, wishes, and the janitor of compacted topics."""
