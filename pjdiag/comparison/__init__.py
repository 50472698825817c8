"""Two checkpoints side by side, or the checkpoints of a training run."""
