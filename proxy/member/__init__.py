"""A worker's part in what proxies agree on: it follows the layouts, holds a lease, keeps fences."""
