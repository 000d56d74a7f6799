"""The race: the same no-op work on the same server for Allswell and its peers, each in an environment of its own."""
