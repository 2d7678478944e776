"""The auditor's Spark jobs: nothing lives here yet, the decision log comes first."""
