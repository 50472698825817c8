"""What a checkpoint must fulfil, and whether it does: policies, metrics, checks, baselines."""
