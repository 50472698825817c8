"""The report: one page with figures, tables and how to make each again."""
