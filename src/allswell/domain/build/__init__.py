"""A build: components that need each other, builders who claim them, auditors who pass or fail them (C1 to C8).

component      the parts of a build and what each needs
line           what is said in the channel, one value for each verb, and its text, both ways
hearing        what follows from a line
due            what a build needs next; which claim was first
step           what a coordinator does, as values
state          how a build stands
announcements  what the channel has to be told
builder        what a builder makes of the coordinator's lines
limits         the figures of a build
"""
