"""What trains: the PJ-bias and a small causal language model with every position method.

Importing this package imports no torch; ``config`` needs none.
"""
