"""PostgreSQL: the ports as SQL, and the only room that knows the driver.

Every statement lives in ``store/sql``; Python here only names, fills and sends them. Driver errors
leave this room translated. Nothing may rely on session state: the next statement may run elsewhere.
"""
