"""Which tuning tips are true for this model on this machine: experiments, each with a verdict.

``experiment`` says what one is, ``experiments/`` has one file for each, ``served`` and ``called``
are the two ways to measure, ``judging`` gives the verdict, ``book`` runs them all.
"""
