"""Running Hugging Face models and observing their attention.

Importing this package imports neither torch nor transformers.
"""
