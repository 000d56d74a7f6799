"""The folder that an attempt works in: files of ours, git, worktrees, baselines, snapshots and what has changed.

git               how git is called: under a configuration of our own, so that nothing of a repository's ever runs
repository        where a working tree is and which commit it stands on, read without git
worktree          a checkout and a branch of its own for one task
baseline          what was in the folder when an attempt began, and what has changed since
diff              that change, shown as git shows it
survey            what stands in a working tree
snapshot          takes snapshots in a repository, and is the way in for both kinds
folder_snapshot   takes snapshots without git
manifest          what a snapshot says about itself
recover           gives work back from a snapshot
files             small files of ours, reached by descriptor and replaced as a whole
"""
