"""A benchmark for unlearning: runs submissions and records what was measured."""

__version__ = "0.2.0"
