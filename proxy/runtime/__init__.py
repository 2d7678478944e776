"""What every part of a running proxy uses: tasks with an owner, logs, metrics, TLS, the clock, work in turns."""
