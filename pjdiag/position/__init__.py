"""The mathematics of position space: arrays in, arrays out.

Every function works on NumPy and torch arrays alike, through the Python array API.
"""
