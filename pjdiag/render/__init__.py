"""A Result as something to read: console, markdown, files. A pure function of the Result."""
