"""What `headrace dev` does: a database in the project's folder, a worker that follows the code, a look at both.

For one person and their machine: nothing here is used in production.
"""
