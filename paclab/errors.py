"""The one error a user may meet: which parameter, what is wrong, what to do."""


class InputError(ValueError):
    """Bad input, told in one line: `parameter: problem; fix`. The command line prints it and exits with 2."""

    def __init__(self, parameter: str, problem: str, fix: str):
        self.parameter, self.problem, self.fix = parameter, problem, fix
        super().__init__(f"{parameter}: {problem}; {fix}")

    def __reduce__(self):
        return type(self), (self.parameter, self.problem, self.fix)


def nearest(name: str, known) -> str:
    """A hint naming the closest known spelling, or all the known names when none is close."""
    import difflib

    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(known)}"
