"""The one exception for problems that the user can mend."""


class InputError(ValueError):
    """Bad input: a file, folder, flag, text or image that cannot be used as it is.

    The message is one sentence: what is wrong, where, and what to do next. The launchers print it without a
    traceback and exit with status 2; library code lets it rise.
    """
