"""pjdiag."""
