"""Reading from managed topics: what a Fetch asks of partitions, from the physical logs, behind fences and gates."""
