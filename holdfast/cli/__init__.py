"""The command line: each verb parses, calls the library, prints; main.py names its file."""
