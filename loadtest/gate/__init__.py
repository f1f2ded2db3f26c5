"""A gate for continuous integration: does the candidate keep what the baseline could do?"""
