"""Declarative maps of ordinary decoders, one JSON file each; ``plugins/README.md`` explains them."""
