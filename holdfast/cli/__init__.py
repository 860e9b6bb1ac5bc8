"""The command line: one module for each verb, which parses, calls the library, and prints."""
