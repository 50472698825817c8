"""Architecture maps, one JSON file each; ``plugins/README.md`` explains them."""
