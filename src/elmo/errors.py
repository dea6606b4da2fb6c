"""`ElmoError`, the one error that the package raises for input that its user can fix."""


class ElmoError(ValueError):
    """Raised for bad input. The message is one sentence that says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2. Any other exception is a bug in the package.
    """
