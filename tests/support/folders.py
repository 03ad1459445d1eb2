"""A folder that the account of the database's programs may use: those refuse to be root, and so do poolers."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.embedded.account import Account, find_account


@contextmanager
def shared_folder() -> Iterator[tuple[Path, Account]]:
    """Yield a new folder and the account; hand files over with `account.own` once they are written."""
    account = find_account()
    folder = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    try:
        account.own(folder)
        yield folder, account
    finally:
        shutil.rmtree(folder, ignore_errors=True)
