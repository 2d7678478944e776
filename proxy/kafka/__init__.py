"""Kordon's own Kafka client: connections to brokers, who leads, questions, writes and reads by them."""
