"""The one exception that a user is meant to read."""


class HoldfastError(Exception):
    """The caller's mistake, in one line: what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2. Our own mistakes
    are assertions and keep their traceback.
    """
