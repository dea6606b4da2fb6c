"""The one error the house raises for input that its user can mend."""


class ElmoError(ValueError):
    """Bad input: the message is one sentence that says what is wrong, where, and what to do.

    The command line prints it as it is and exits with 2; anything else that is raised is a defect of ours.
    """
