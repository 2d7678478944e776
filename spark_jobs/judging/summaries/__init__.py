"""What the report draws: small tables that each micro-batch is folded into."""
