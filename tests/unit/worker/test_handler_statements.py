"""What handlers may not send: what ends the transaction, and what stays in a session that others get next."""

import pytest

from headrace.domain.errors import NotAllowed
from headrace.domain.handler_statements import require_harmless


@pytest.mark.parametrize(
    "query",
    [
        "commit",
        "  /* why */ ROLLBACK",
        "-- a comment\nbegin",
        "prepare transaction 'x'",
        "set search_path to shop",
        "SET SESSION lock_timeout = '1s'",
        "set role reader",
        "set session authorization reader",
        "reset all",
        "discard all",
        "listen orders",
        "UNLISTEN *",
        "prepare p as select 1",
        "deallocate all",
        "create temp table t (n int)",
        "create local temporary table t (n int)",
        "select pg_advisory_lock(1)",
        "select pg_try_advisory_lock_shared ( 1, 2 )",
        "select set_config('search_path', 'shop', false)",
        "select set_config('lock_timeout', format('%s', 1), 'f')",
    ],
)
def test_what_outlives_the_transaction_is_refused(query: str) -> None:
    """Whatever ends the transaction or stays in the session is refused, however it is spelled, and told why."""
    with pytest.raises(NotAllowed, match=r"handed on, and|cannot begin or end"):
        require_harmless(query)


@pytest.mark.parametrize(
    "query",
    [
        "savepoint a",
        "rollback to savepoint a",
        "rollback work to a",
        "set local search_path to shop",
        "SET CONSTRAINTS ALL DEFERRED",
        "notify orders, 'x'",
        "create temp table t (n int) on commit drop",
        "create table temp (n int)",
        "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)",
        "select set_config('search_path', 'shop', true)",
        "update settings set value = false where name = 'x'",
        "insert into prepared values (1)",
        "select 'settings'",
    ],
)
def test_what_ends_with_the_transaction_is_let_through(query: str) -> None:
    """Everything that the transaction takes with it may be sent."""
    require_harmless(query)
