"""Architecture maps for pjdiag: every JSON file in this folder is one."""
