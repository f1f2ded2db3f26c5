"""The baseline that most teams start with: FastAPI on gunicorn, one session per worker.

Nothing is imported here: gunicorn's arbiter forks its workers from what it has loaded itself.
"""
