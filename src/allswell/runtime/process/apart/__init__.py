"""What runs in the warden's process and in its reapers, apart from the program that uses Allswell.

It is loaded without the rest of the package (`python -I -S`), so that 200 reapers stay small: standard library only,
and only imports from beside it. `main` is the warden, `reaper` what it forks, `tree` who belongs to a reaper, `output`
what a command prints, `stops` what follows when a person stops it and what the warden runs then, `wire` how both talk
to the supervisor (which uses that module, too).
"""
