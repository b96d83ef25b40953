"""Measurements of the course's own instruments. They are run by hand, not by the tests."""
