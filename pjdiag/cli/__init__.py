"""The command line: parse, call, print, exit. One small module a command."""
