"""The one exception for problems that the user can mend."""


class InputError(ValueError):
    """Bad input: a file, folder, flag, text or image that cannot be used as it is.

    The message is one sentence: the fault, its location and the remedy. The launchers print it without a
    traceback and exit with status 2. Library code lets it rise.

    Attributes:
      code: which fault it is, in a few words such as ``another-run``, for programs that do one thing or another about
        it: it stays when the message is worded again. The same fault has the same code wherever it is found. Where
        what the message names already tells the fault, as an option of a wrong type, there may be none: None.
    """

    def __init__(self, *args: object, code: str | None = None):
        super().__init__(*args)
        self.code = code
