"""Authorities and certificates made on the spot with openssl, and a PostgreSQL that takes connections by TLS only.

Nothing of it is kept: keys live in the folder of a test, for a day.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import Programs
from support.folders import shared_folder

TLS_ONLY = "hostssl all all 127.0.0.1/32 trust\n"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority of our own."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        """What clients are given to trust."""
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, addresses: str) -> Path:
        """Issue a server's certificate for addresses (`IP:127.0.0.1,DNS:name`); its key lies beside it."""
        made, request = self.folder / f"{name}.crt", self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName = {addresses}\n")
        _openssl("req", "-new", *_key(made), "-subj", f"/CN={name}", "-out", str(request))
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate),
            "-CAkey", str(self.certificate.with_suffix(".key")), "-CAcreateserial", "-days", "1",
            "-extfile", str(extensions), "-out", str(made),
        )  # fmt: skip
        return made


def make_authority(folder: Path, name: str) -> Authority:
    """Make an authority whose files lie in a folder."""
    authority = Authority(folder, name)
    made = authority.certificate
    _openssl("req", "-x509", *_key(made), "-subj", f"/CN={name}", "-days", "1", "-out", str(made))
    return authority


@contextmanager
def tls_cluster(programs: Programs, addresses: str) -> Iterator[tuple[Cluster, Authority]]:
    """Yield a server that takes TLS only, with a certificate for these addresses, and the authority behind it."""
    openssl_or_skip()
    with shared_folder() as (folder, account):
        authority = make_authority(folder, "ours")
        certificate = authority.issue("server", addresses)
        (folder / "hba").write_text(TLS_ONLY)
        account.own(folder)
        settings = {
            "ssl": "on",
            "ssl_cert_file": str(certificate),
            "ssl_key_file": str(certificate.with_suffix(".key")),
            "hba_file": str(folder / "hba"),
        }
        with Cluster(programs, settings=settings) as cluster:
            yield cluster, authority


def openssl_or_skip() -> None:
    """Skip the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl was not found: install it (Debian: apt-get install openssl)")


def _key(certificate: Path) -> list[str]:
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", str(certificate.with_suffix(".key"))]


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
