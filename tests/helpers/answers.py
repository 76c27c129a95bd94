"""What tests of commands expect of an answer."""


def refused(answer, *parts):
    """The exit code of bad input, nothing on standard output, and one line that has these parts.

    Args:
        answer: exit code, standard output, standard error.
    """
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
