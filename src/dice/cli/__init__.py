"""The command line: one file per verb. The only package that prints."""
