"""Entry of the operator process, `headrace-operator` and `python -m headrace_operator`.

The controllers are not written yet, and an operator that watches nothing must not look alive: it says so and ends with
an error, so that a deployment of it fails visibly.
"""

import sys

from pydantic import ValidationError

from headrace_operator import __version__
from headrace_operator.settings import OperatorSettings

NOT_FINISHED = 4
USAGE = 2


def main() -> int:
    """Check the settings, say that the controllers are still to come, and return a non-zero exit code."""
    try:
        OperatorSettings()
    except ValidationError as error:
        sys.stderr.write(f"headrace-operator: the environment is not usable.\n{error}\n")
        return USAGE
    sys.stderr.write(
        f"headrace-operator {__version__}: this version has no controllers yet and watches nothing.\n"
        "Run workers by hand meanwhile: headrace worker MODULE:APP\n"
    )
    return NOT_FINISHED


if __name__ == "__main__":
    sys.exit(main())
