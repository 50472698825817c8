"""The experiments of ``pjdiag reproduce``, one module each.

Importing this package imports no torch; neither do ``registry``, ``base`` and ``parts``.
"""
