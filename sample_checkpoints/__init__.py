"""Small trained checkpoints that ship with pjdiag, each in a folder with its card."""
