"""A build: components that need each other, builders who claim them, auditors who pass or fail them (C1 to C8).

line         what is said in the channel, one value for each verb
wording      between a line and its text, both ways
component    the parts of a build and what each needs
"""
