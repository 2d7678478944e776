"""What ACLs there must be at the brokers: for Kordon, for faces of topics, and for nobody else."""
