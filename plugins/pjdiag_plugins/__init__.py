"""Architecture adapters that ship with pjdiag, one module per family."""
