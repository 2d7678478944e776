"""The auditor: Spark jobs that look for broken promises in the decision log and in the managed topics."""
