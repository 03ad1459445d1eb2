"""Built-in partitioners as SQL, so that no event crosses the wire to be routed.

The expressions lie in ``sql/partition_keys.sql``; here they are nested and their literals filled. A
prefix comes from the user's code and gets into the text of a statement: it is written so that no
character of it can mean anything to SQL or to whoever fills tokens and schema prefixes afterwards.
"""

import re

from headrace.domain.errors import BadDeclaration
from headrace.partitioning.keys import PartitionerKind, PartitionerSpec
from headrace.store.queries import Fragment, Queries

_PLAIN = re.compile(r"[A-Za-z0-9_-]")


def key_expression(spec: PartitionerSpec, queries: Queries) -> Fragment:
    """Return the SQL expression that makes the key of event row ``e``; null where Python makes None.

    Raises:
        BadDeclaration: the spec lacks what its kind needs.

    """
    match spec:
        case PartitionerSpec(kind=PartitionerKind.STREAM):
            return queries.fragment("key_stream")
        case PartitionerSpec(kind=PartitionerKind.TAG, prefix=str(prefix)):
            return queries.fragment("key_tag", prefix=text_literal(prefix))
        case PartitionerSpec(kind=PartitionerKind.BUCKET, buckets=int(n), of=PartitionerSpec() as of):
            return queries.fragment("key_bucket", of=key_expression(of, queries), n=Fragment(n))
        case PartitionerSpec(kind=PartitionerKind.HASHED, of=PartitionerSpec() as of):
            return queries.fragment("key_hashed", of=key_expression(of, queries))
    raise BadDeclaration(f"{spec} lacks what a partitioner of its kind needs")


def text_literal(text: str) -> Fragment:
    """Return ``text`` as an SQL literal in which everything but ASCII letters, digits, ``_`` and ``-`` is escaped.

    The escape form means the same whatever ``standard_conforming_strings`` says.

    Raises:
        BadDeclaration: the text holds NUL or a lone surrogate, which no literal can.

    """
    return Fragment("E'" + "".join(map(_escaped, text)) + "'")


def _escaped(character: str) -> str:
    if character == "\0" or "\ud800" <= character <= "\udfff":
        raise BadDeclaration(f"{character!a} cannot be part of a text in PostgreSQL")
    return character if _PLAIN.fullmatch(character) else f"\\U{ord(character):08X}"
