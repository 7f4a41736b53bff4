"""The leaderboard: records to scores to pages. Needs no machine-learning stack."""
